// What is said of the data of a run: files without rows, rows of which nothing is trained. Not
// here: batches, files that are found, rows that are skipped (train_data_test.cpp).
#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/temp_folder.h"
#include "tools/launch/launch.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

struct Texts {
  test::TempFolder folder;
  config::TrainConfig config;

  Texts() {
    config.data.cache_dir = (folder / "cache").string();
    config.data.sequence_length = 2;
    config.data.document_separator = false;
  }
  std::string name(const char* file) { return (folder / file).string(); }
  std::string refusal() {
    const std::string error = test::error_of([&] {
      comm::run_local_ranks(1, [&](comm::Communicator& world) { TrainData data(world, config); });
    });
    return error;
  }
};

TEST_CASE_FIXTURE(Texts, "train data: an empty file among others, and files of several formats") {
  config.data.train = {
      folder.write("a.jsonl", "").string(), folder.write("b.csv", "n,text\n1,abc\n").string(),
      folder.write("c.json", "[{\"text\": \"def\"}]").string(), folder.write("d.txt", "").string()};
  config.data.validation.clear();
  config.data.shuffle = false;
  config.data.sequence_length = 3;
  config.train.batch = 2;
  for (int run = 0; run < 2; ++run) {  // that makes the cache, and that finds it
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      const TrainData data(world, config);
      CHECK(data.sequences() == 2);
      const Batch batch = data.training({}).get(0);
      const std::string_view text(world.rank() == 0 ? "abc" : "def");
      CHECK(std::equal(text.begin(), text.end(), batch.tokens.begin()));
      CHECK(data.skipped_rows().empty());
      const std::vector<std::string> remarks = data.remarks();
      REQUIRE(remarks.size() == 2);
      CHECK(remarks[1] ==
            fmt::format("note: {}: the file is empty; it is left out, and 1 more file",
                        name("a.jsonl")));
    });
  }
  config.data.train = {name("a.jsonl"), name("d.txt")};
  CHECK(refusal() == name("a.jsonl") + ": the file is empty, as in the other 1 file");
}

// What check_trained() says; else the warnings.
std::string untrained(const config::TrainConfig& config, DataUse use = DataUse::kAll) {
  std::string out;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    TrainData data(world, config, nullptr, use);
    try {
      data.check_trained(world, {});
    } catch (const AgreedError& error) {
      if (world.rank() == 1) out = error.what();
      return;
    }
    if (world.rank() != 0) return;
    for (const std::string& remark : data.remarks()) {
      if (remark.starts_with("warning: ")) out += remark;
    }
  });
  return out;
}

TEST_CASE_FIXTURE(Texts, "train data: nothing is trained of the data, a source, an evaluation") {
  const auto rows = [&](const char* file, int empty, int full) {
    std::string text;
    for (int i = 0; i < empty + full; ++i)
      text += i < empty ? "{\"text\":\"\"}\n" : "{\"text\":\"ab\"}\n";
    return folder.write(file, text).string();
  };
  const std::string empty = rows("e.jsonl", 3, 0), full = rows("f.jsonl", 0, 9),
                    tenth = rows("t.jsonl", 1, 9), more = rows("m.jsonl", 2, 9);
  config.data.pack = data::Pack::kExamples;
  config.data.validation.clear();
  config.train.batch = 2;
  const auto of_training = [&](const std::string& file) {
    config.data.train = {file};
    return untrained(config);
  };
  CHECK(of_training(empty) ==
        "data.train (" + empty +
            "): nothing is trained or predicted of any of its 3 rows: they have "
            "fewer than two tokens, so none is predicted");
  CHECK(of_training(rows("o.jsonl", 1, 0)) ==
        "data.train (" + name("o.jsonl") +
            "): nothing is trained or predicted of its 1 row: it has fewer than two tokens, so "
            "none is predicted");
  CHECK(of_training(full) == "");
  CHECK(of_training(tenth) == "");
  CHECK(of_training(more) ==
        "warning: data.train (" + more +
            "): nothing is trained or predicted of 2 of 11 rows: they have fewer "
            "than two tokens, so none is predicted");
  config.data.objective = data::Objective::kMaskPad;
  CHECK(test::contains(of_training(empty), "their tokens are the padding token"));
  CHECK(of_training(full) == "");
  config.data.objective = data::Objective::kCompatAll;
  CHECK(of_training(empty) == "");
  config.data.objective = data::Objective::kLm;

  config.data.train = {full};
  config.data.validation = {empty};
  CHECK(
      test::contains(untrained(config), "data.validation (" + empty + "): nothing is trained or"));
  CHECK(test::contains(untrained(config, DataUse::kValidation), "of any of its 3 rows"));
  config.data.validation = {more};
  CHECK(test::contains(untrained(config, DataUse::kValidation), "of 2 of 11 rows"));
  config.train.eval_batches = 1;  // of the first two
  CHECK(test::contains(untrained(config), "of any of its 2 rows"));
  config.data.validation = {"50%"};
  config.data.train = {empty};
  CHECK(test::contains(untrained(config), "data.train (" + empty));

  config.data.validation.clear();
  config.data.train.clear();
  config.data.sources = {{.path = {full}, .weight = 9}, {.path = {empty}, .weight = 1}};
  CHECK(test::contains(untrained(config), "data.sources (" + empty + "): nothing"));
  config.data.sources.pop_back();
  config.data.pack = data::Pack::kStream;
  CHECK(untrained(config) == "");
}

TEST_CASE_FIXTURE(Texts, "train data: answers that are cut away") {
  const auto row = [](int prompt, int answer) {
    return fmt::format("{{\"question\": \"{}\", \"reply\": \"{}\"}}\n", std::string(prompt, 'q'),
                       std::string(answer, 'a'));
  };
  config.data.train = {folder.write("t.jsonl", row(1, 1) + row(9, 1)).string()};
  config.data.row_template =
      folder.write("t.txt", "{question}{>cue}{question}{>answer}{reply}").string();
  config.data.objective = data::Objective::kSft;
  config.data.validation.clear();
  config.data.sequence_length = 8;
  config.train.batch = 2;
  const std::string why = ": their answers are empty, or cut away at data.sequence_length: 8";
  CHECK(untrained(config) == "warning: data.train (" + name("t.jsonl") +
                                 "): nothing is trained or predicted of 1 of 2 rows" + why);
  folder.write("t.jsonl", row(8, 1) + row(9, 1));
  CHECK(untrained(config) == "data.train (" + name("t.jsonl") +
                                 "): nothing is trained or predicted of any of its 2 rows" + why);
}

}  // namespace
}  // namespace fsdp::tools
