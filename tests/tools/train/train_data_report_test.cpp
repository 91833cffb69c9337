// What is said of the data of a run: files without rows, rows of which nothing is trained, figures
// of the rows. Not here: batches, files that are found, rows that are skipped
// (train_data_test.cpp).
#include <algorithm>

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

// Conversations of bytes: every message is its content and ".".
struct Conversations : Texts {
  Conversations() {
    config.data.format = data::TextFormat::kMessages;
    config.data.tokenizer = "bytes";
    config.data.chat.chat_template =
        folder.write("t.jinja", "{% for m in messages %}{{ m.content }}.{% endfor %}").string();
    config.data.sequence_length = 6;
    config.train.batch = 2;
  }
  // Rows of a user's message of `user` letters and a reply of `reply`; 0: no message.
  static std::string row(int user, int reply) {
    Json messages = Json::array();
    for (const auto& [role, size] : {std::pair{"user", user}, {"assistant", reply}}) {
      Json message = Json::object();
      message["role"] = role;
      message["content"] = std::string(static_cast<size_t>(size), role[0]);
      if (size > 0) messages.push_back(message);
    }
    Json out = Json::object();
    out["messages"] = messages;
    return out.dump() + "\n";
  }
  static std::string rows(int count, int user, int reply) {
    std::string out;
    for (int i = 0; i < count; ++i) out += row(user, reply);
    return out;
  }
  void train(const std::string& text) {
    config.data.train = {folder.write("c.jsonl", text).string()};
  }
  std::vector<std::string> remarks() const {
    std::vector<std::string> out;
    comm::run_local_ranks(
        1, [&](comm::Communicator& world) { out = TrainData(world, config, nullptr).remarks(); });
    return out;
  }
};

TEST_CASE_FIXTURE(Conversations, "train data: conversations without a trained token") {
  const std::string begin =
      "data.train (" + name("c.jsonl") + "): nothing is trained or predicted ";
  const std::string why =
      ": they have no turn of the assistant with a token that is trained, or it begins behind "
      "data.sequence_length: 6";
  train(rows(20, 2, 1));
  CHECK(untrained(config) == "");
  train(rows(2, 2, 1) + row(2, 0) + rows(17, 2, 1));  // 5 % of 20
  CHECK(untrained(config) == "warning: " + begin + "of 1 of 20 rows (the first is row 3)" + why);
  train(rows(2, 2, 1) + row(2, 0) + rows(16, 2, 1) + row(6, 1));  // one is cut before its reply
  CHECK(untrained(config) ==
        begin + "of 2 of 20 rows (the first is row 3)" + why + "; data.max_untrained_rows: 5%");
  config.data.chat.max_untrained_rows = 2;
  CHECK(untrained(config) == "warning: " + begin + "of 2 of 20 rows (the first is row 3)" + why);
  config.data.chat.max_untrained_rows = 0;
  CHECK(untrained(config) ==
        begin + "of 2 of 20 rows (the first is row 3)" + why + "; data.max_untrained_rows: 0");
  config.data.chat.train_on = data::TrainOn::kAll;
  CHECK(untrained(config) == "");
  config.data.chat.train_on = data::TrainOn::kAssistant;
  config.data.chat.max_untrained_rows = config::StepsOrShare::of_percent(100);
  CHECK(untrained(config).starts_with("warning: "));
  train(rows(3, 2, 0));  // nothing at all is an error in any case
  CHECK(untrained(config) == begin + "of any of its 3 rows" + why);
  train(row(2, 0));
  CHECK(untrained(config) ==
        begin +
            "of its 1 row: it has no turn of the assistant with a token that is trained, or it "
            "begins behind data.sequence_length: 6");
}

TEST_CASE_FIXTURE(Conversations, "train data: untrained conversations that are just looked at") {
  train(rows(3, 2, 0));
  std::vector<std::string> remarks;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    TrainData data(world, config);
    data.check_trained(world, {}, /*looked_at=*/true);
    if (world.rank() == 0) remarks = data.remarks();
  });
  const auto warning = std::find_if(remarks.begin(), remarks.end(), [](const std::string& remark) {
    return remark.starts_with("warning: ");
  });
  REQUIRE(warning != remarks.end());
  CHECK(test::contains(*warning, "of 3 of 3 rows (the first is row 1): they have no turn"));
}

TEST_CASE_FIXTURE(Conversations, "train data: conversations to evaluate, and a share of the data") {
  train(rows(4, 2, 1));
  config.data.validation = {folder.write("v.jsonl", row(2, 1) + rows(2, 2, 0)).string()};
  CHECK(untrained(config) ==
        "data.validation (" + name("v.jsonl") +
            "): nothing is trained or predicted of 2 of 3 rows (the first is row 2): they have no "
            "turn of the assistant with a token that is trained, or it begins behind "
            "data.sequence_length: 6; data.max_untrained_rows: 5%");
  config.data.validation = {"50%"};
  train(rows(2, 2, 1) + rows(2, 2, 0));
  config.data.chat.max_untrained_rows = 4;
  // Which row it is of the file is not known: rows are taken by a seed.
  CHECK_FALSE(test::contains(untrained(config), "the first is row"));
}

TEST_CASE_FIXTURE(Conversations, "train data: remarks on conversations") {
  train(row(2, 1) + row(4, 3));
  std::vector<std::string> said = remarks();
  REQUIRE(said.size() == 3);
  CHECK(said[0].starts_with("data.train: " + name("c.jsonl") + "; 2 rows, "));
  CHECK(said[0].ends_with(", 27.3 % of 11 tokens trained"));
  CHECK(said[1] ==
        "data.train_on: assistant; rows are padded on the right to the longest of a batch, with "
        "token 256");
  CHECK(said[2] == "note: data.train (" + name("c.jsonl") +
                       "): 2 turns (the first in row 1) without an end token of the model: it does "
                       "not learn to stop there");
  config.data.chat.train_on = data::TrainOn::kLast;
  config.data.pad = data::PadSide::kLeft;
  config.data.pad_to = data::PadTo::kLength;
  said = remarks();
  CHECK(said[1] ==
        "data.train_on: last; rows are padded on the left to data.sequence_length, with token 256");
  config.data.chat.train_on = data::TrainOn::kAll;
  CHECK(remarks()[0].ends_with(", 100.0 % of 11 tokens trained"));
  // A tokenizer that has no such tokens, and that would put one in front of a text.
  config.data.tokenizer = test::fixture_path("tokenizers/mistral_v03").string();
  config.data.chat.chat_template = "chatml";
  const std::vector<std::string> noted = remarks();
  REQUIRE(noted.size() >= 4);
  CHECK(noted[2].starts_with("note: the chat template writes <|im_start|>, <|im_end|>, which "));
  CHECK(noted[3].starts_with("note: the tokenizer puts \"<s>\" around a text: not around a "));
}

TEST_CASE_FIXTURE(Conversations, "train data: figures of each source") {
  const auto figures = [&] {
    std::vector<DataFigures> out;
    comm::run_local_ranks(1, [&](comm::Communicator& world) {
      out = TrainData(world, config, nullptr, DataUse::kTraining).figures();
    });
    return out;
  };
  using Lengths = std::map<int64_t, int64_t>;
  train(row(2, 1) + row(4, 3) + row(7, 1) + row(1, 1));
  std::vector<DataFigures> got = figures();
  REQUIRE(got.size() == 1);
  CHECK(got[0].name == "data.train (" + name("c.jsonl") + ")");
  CHECK(got[0].rows == 4);
  CHECK(got[0].cut == 2);
  CHECK(got[0].tokens == 5 + 6 + 6 + 4);
  CHECK(got[0].trained == 2 + 1 + 0 + 2);
  CHECK(got[0].longest == 10);
  CHECK(got[0].lengths == Lengths{{4, 1}, {8, 1}, {16, 2}});
  config.data.chat.train_on = data::TrainOn::kAll;
  CHECK(figures()[0].trained == 5 + 6 + 6 + 4);
  config.data.chat.train_on = data::TrainOn::kAssistant;
  config.data.sources = {{.path = config.data.train},
                         {.path = {folder.write("d.jsonl", row(1, 3)).string()}}};
  config.data.train.clear();
  got = figures();
  REQUIRE(got.size() == 2);
  CHECK(got[1].name == "data.sources (" + name("d.jsonl") + ")");
  CHECK(got[1].rows == 1);
  CHECK(got[1].cut == 0);
  CHECK(got[1].trained == 4);
  CHECK(got[1].lengths == Lengths{{8, 1}});
  // Sequences of a stream have one length.
  config.data.sources.clear();
  config.data.train = {folder.write("t.txt", "abcdefghijklmn").string()};
  config.data.format = data::TextFormat::kAuto;
  config.data.chat = {};
  got = figures();
  CHECK(got[0].rows == 2);
  CHECK(got[0].cut == 0);
  CHECK(got[0].tokens == 12);
  CHECK(got[0].trained == 12);
  CHECK(got[0].lengths == Lengths{{8, 2}});
}

}  // namespace
}  // namespace fsdp::tools
