// Several weighted sources of training data: their shares, one batch after the other on any ranks
// and from any step, what is held out, what two runs must have in common, what is refused.
#include <algorithm>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/error.h"
#include "tests/support/temp_folder.h"
#include "tools/launch/launch.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

// Rows of one letter a source: 30 of a, 12 of b, 5 of c. The letters of a row say which row it is.
struct Sources {
  test::TempFolder folder;
  config::TrainConfig config;

  Sources() {
    config.data.cache_dir = (folder / "cache").string();
    config.data.pack = data::Pack::kExamples;
    config.data.sequence_length = 64;
    config.train.batch = 8;
    config.train.steps = 60;
    const std::map<char, int> rows = {{'a', 30}, {'b', 12}, {'c', 5}};
    for (const auto& [letter, count] : rows) {
      std::string text;
      for (int i = 1; i <= count; ++i) {
        text += fmt::format("{{\"text\": \"{}\"}}\n", std::string(static_cast<size_t>(i), letter));
      }
      const auto file = folder.write(std::string(1, letter) + ".jsonl", text);
      config.data.sources.push_back({.path = {file.string()}});
    }
    config.data.sources[1].weight = 3;
    config.data.sources[2].weight = 4;
  }
  std::string name(const char* file) { return (folder / file).string(); }
};

// "a17": source and row, by the letters before end-of-text.
std::string row_of(const Batch& batch, int64_t row) {
  const auto first = batch.tokens.begin() + row * batch.length;
  const auto end = std::find(first, first + batch.length, 256);
  return fmt::format("{}{}", static_cast<char>(*first), end - first);
}

// All rows of a step, in the order of the batch of all ranks.
std::vector<std::string> rows_of(const config::TrainConfig& config, int ranks, int64_t step) {
  std::vector<std::string> out(static_cast<size_t>(*config.train.batch));
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    const TrainData data(world, config);
    const Batch batch = data.training({}).get(step);
    for (int64_t row = 0; row < batch.rows; ++row) {
      out.at(static_cast<size_t>(row * world.size() + world.rank())) = row_of(batch, row);
    }
  });
  std::erase(out, "");
  return out;
}

TEST_CASE_FIXTURE(Sources, "sources: the shares of the weights, each through its own rows") {
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    const TrainData data(world, config);
    CHECK(data.sequences() == 47);
    CHECK(data.steps_per_epoch() == 6);
    std::map<char, std::vector<std::string>> seen;
    const BatchSource batches = data.training({});
    for (int64_t step = 0; step < 60; ++step) {
      const Batch batch = batches.get(step);
      CHECK(batch.rows == (step % 6 == 5 ? 7 : 8));
      std::map<char, int> of_batch;
      for (int64_t row = 0; row < batch.rows; ++row) {
        const std::string name = row_of(batch, row);
        seen[name[0]].push_back(name);
        ++of_batch[name[0]];
      }
      CHECK(of_batch['a'] <= 2);  // of 8, by weight 1 of 8
      CHECK((of_batch['b'] >= 1 && of_batch['b'] <= 5));
      CHECK((of_batch['c'] >= 1 && of_batch['c'] <= 7));
    }
    for (const auto& [letter, rows, share] :
         {std::tuple{'a', 30, 0.125}, {'b', 12, 0.375}, {'c', 5, 0.5}}) {
      CAPTURE(letter);
      CHECK(static_cast<double>(seen[letter].size()) == doctest::Approx(470 * share).epsilon(0.02));
      for (size_t first = 0; first + static_cast<size_t>(rows) <= seen[letter].size();
           first += static_cast<size_t>(rows)) {
        const auto begin = seen[letter].begin() + static_cast<std::ptrdiff_t>(first);
        CHECK(std::set<std::string>(begin, begin + rows).size() == static_cast<size_t>(rows));
      }
    }
    const std::vector<std::string> remarks = data.remarks();
    REQUIRE(remarks.size() == 4);
    CHECK(remarks[0] == "data.sources: " + name("a.jsonl") +
                            "; 30 rows, 0 of them cut to 64 tokens; weight 1: 12.5 % of the "
                            "sequences, each 0.20 times an epoch");
    CHECK(remarks[2].ends_with("weight 4: 50.0 % of the sequences, each 4.70 times an epoch"));
  });
}

TEST_CASE_FIXTURE(Sources, "sources: a step has the same rows on any ranks, asked for alone") {
  for (const int64_t step : {0, 5, 6, 41}) {
    const std::vector<std::string> rows = rows_of(config, 1, step);
    CHECK(rows.size() == (step % 6 == 5 ? 7 : 8));
    for (const int ranks : {2, 3}) CHECK(rows_of(config, ranks, step) == rows);
  }
  config.train.seed = 43;
  const std::vector<std::string> other = rows_of(config, 1, 0);
  config.train.seed = 42;
  CHECK(rows_of(config, 1, 0) != other);
}

TEST_CASE_FIXTURE(Sources, "sources: a share is held out of each, and never trained") {
  config.data.validation = {"20%"};
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    const TrainData data(world, config);
    CHECK(data.sequences() == 24 + 10 + 4);
    CHECK(data.validation_sequences() == 6 + 2 + 1);
    std::set<std::string> held, trained;
    const BatchSource validation = data.validation({}), training = data.training({});
    for (int64_t i = 0; i < validation.batches; ++i) {
      const Batch batch = validation.get(i);
      for (int64_t row = 0; row < batch.rows; ++row) held.insert(row_of(batch, row));
    }
    for (int64_t step = 0; step < 60; ++step) {
      const Batch batch = training.get(step);
      for (int64_t row = 0; row < batch.rows; ++row) trained.insert(row_of(batch, row));
    }
    CHECK(held.size() == 9);
    CHECK(trained.size() == 24 + 10 + 4);
    for (const std::string& row : held) CHECK_FALSE(trained.contains(row));
  });
}

TEST_CASE_FIXTURE(Sources, "sources: what a run that goes on must find again") {
  const auto hash = [&] {
    std::string out;
    comm::run_local_ranks(1, [&](comm::Communicator& world) {
      out = TrainData(world, config).hashes().at("tokens of data.train");
    });
    return out;
  };
  const std::string before = hash();
  CHECK(before.find(" weight 3, ") != std::string::npos);
  std::filesystem::rename(folder / "a.jsonl", folder / "moved.jsonl");
  config.data.sources[0].path = {name("moved.jsonl")};
  CHECK(hash() == before);
  config.data.sources[1].weight = 2;
  CHECK(hash() != before);
  config.data.sources[1].weight = 3;
  std::swap(config.data.sources[0], config.data.sources[2]);
  CHECK(hash() != before);
}

TEST_CASE_FIXTURE(Sources, "sources: streams and rows that are skipped; what is not there") {
  const auto refusal = [&] {
    std::string out;
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      try {
        const TrainData data(world, config);
      } catch (const AgreedError& error) {
        if (world.rank() == 0) out = error.what();
      }
    });
    return out.starts_with("rank 0: ") ? out.substr(8) : out;
  };
  config.data.pack = data::Pack::kStream;
  config.data.sequence_length = 10;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    const TrainData data(world, config);
    // Texts with end-of-text, in sequences of 10: 465 + 30, 78 + 12 and 15 + 5 tokens.
    CHECK(data.sequences() == 49 + 9 + 2);
    CHECK(data.training({}).get(0).tokens.size() == 40);
  });
  config.data.sequence_length = 30;
  CHECK(refusal() == "data.sources (" + name("c.jsonl") +
                         "): 20 tokens, fewer than one sequence of 30 (data.sequence_length)");
  config.data.sequence_length = 10;
  folder.write("c.jsonl", "{}\n{\"text\": \"0123456789\"}\n");
  CHECK(refusal() == name("c.jsonl") + ":1: no field \"text\" (fields: none)");
  config.data.bad_rows = data::BadRows::kSkip;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    CHECK(TrainData(world, config).skipped_rows().size() == 1);
  });
  config.data.sources[1].path = {"nowhere.jsonl"};
  config.places["data.sources"] = "run.yaml:3";
  CHECK(refusal() == "run.yaml:3: data.sources: nowhere.jsonl: no such file");
}

}  // namespace
}  // namespace fsdp::tools
