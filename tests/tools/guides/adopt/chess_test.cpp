// The chess guide's script: its flags, and what it does without one.
// Requirements: S0.1, S0.2, S0.6.
#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/error.h"
#include "core/io/json.h"
#include "tests/support/adopted.h"
#include "tools/train/train_data.h"

namespace fsdp::adopt {
namespace {

using test::Adopted;
using Words = std::vector<std::string>;

Adopted adopted(const Words& words, const AdoptOptions& options = {}) {
  return Adopted(adopt_chess(words, options));
}
std::string refusal(const Words& words) {
  return test::error_of([&] { adopt_chess(words, {}); });
}

TEST_CASE("adopt chess: what the script does without a flag") {
  const Adopted a = adopted({"chess_finetune.py"});
  const config::TrainConfig& c = a.config;
  CHECK(c.train.rows_per_pass == 1);
  CHECK(c.train.micro_steps == 8);
  CHECK(c.train.lr == 1e-5);
  CHECK(c.train.epochs == 1);
  CHECK(c.train.clip_norm == 0);
  CHECK(c.train.dtype == DType::kBF16);
  CHECK_FALSE(c.train.reduce_dtype.has_value());
  CHECK(c.train.schedule.kind == optim::ScheduleKind::kLinear);
  CHECK(c.train.optimizer.decay == Decay::kAll);
  CHECK(c.train.optimizer.weight_decay == 0.01);
  CHECK(c.data.sequence_length == 512);
  CHECK(c.data.last_batch == data::LastBatch::kDropLast);
  CHECK(c.data.packing() == data::Pack::kExamples);
  CHECK(c.data.shuffle_rule == data::ShuffleRule::kTorch);
  CHECK(c.fsdp.wrap == config::Wrap::kTransformerBlock);
  CHECK(c.fsdp.options.strategy == comm::Strategy::kFullShard);
  CHECK(c.model.path == "codellama/CodeLlama-7b-hf");
  CHECK_FALSE(c.data.separates_documents());
  CHECK(a.says("the folder codellama/CodeLlama-7b-hf must be there"));
  const Adopted own({adopt_chess({"chess_finetune.py"},
                                 {.typed = {{"model.preset", "gpt2-124m", "--model gpt2-124m"}}})});
  CHECK(own.config.model.path.empty());
  CHECK(own.config.model.preset == "gpt2-124m");
  CHECK_FALSE(own.says("must be there"));
}

// The script's own lr_schedule(): a tenth of all steps, rounded up, rises from 0, then it falls to
// 0.
TEST_CASE("adopt chess: the rate of every update is the script's") {
  for (const auto& [steps, warmup] : {std::pair{20, 2}, {8, 1}, {11, 2}}) {
    config::TrainConfig config = adopted({"--max_training_steps", std::to_string(steps)}).config;
    const optim::Schedule schedule = config.schedule();
    for (int step = 0; step < steps; ++step) {
      const double share = step < warmup ? double(step) / warmup
                                         : double(steps - step) / std::max(1, steps - warmup);
      CHECK(schedule.rate(step) == doctest::Approx(1e-5 * share).epsilon(1e-12));
    }
  }
  const optim::Schedule of_epochs = adopted({"chess.py"}).config.in_steps(20).schedule();
  CHECK(of_epochs.rate(0) == 0);
  CHECK(of_epochs.rate(1) == doctest::Approx(5e-6));
  CHECK(of_epochs.rate(2) == doctest::Approx(1e-5));
  CHECK(of_epochs.rate(11) == doctest::Approx(5e-6));
}

// The ids are those that Hugging Face's tokenizers give (tests/fixtures/tokenizers).
TEST_CASE("adopt chess: games become the rows that the script trains; a bad line is named") {
  const std::vector<std::string> games = {
      "e2e4 c7c5 g1f3 d7d6 d2d4 c5d4 f3d4 g8f6 b1c3 a7a6",
      "d2d4 g8f6 c2c4 e7e6 b1c3 f8b4 e2e3 e8g8 g1e2 d7d5 a2a3 b4e7 c4d5 f6d5", "e7e8q a2a1n 0-1"};
  const std::filesystem::path tokenizer = test::fixture_path("tokenizers/llama2_legacy");
  std::map<std::string, std::vector<int32_t>> recorded;
  for (const Json& each : read_json_file(tokenizer / "vectors.json")) {
    recorded[each["text"]] = each["ids_with_special"].get<std::vector<int32_t>>();
  }
  const test::TempFolder folder;
  std::string lines;
  for (const std::string& game : games) lines += "{\"text\": \"" + game + "\"}\n";
  config::TrainConfig config = adopted({"--batch_size_per_device", "3"}).config;
  config.model.path.clear();
  config.data.tokenizer = tokenizer.string();
  config.data.train = {folder.write("games.jsonl", lines).string()};
  config.data.cache_dir = (folder / "cache").string();
  config.data.shuffle = false;
  config.train.micro_steps = 1;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    const LabelledRows rows = tools::TrainData(world, config).labelled_rows(0);
    const size_t length = recorded.at(games[1]).size();  // the longest
    REQUIRE(rows.tokens.size() == 3 * length);
    for (size_t i = 0; i < rows.tokens.size(); ++i) {
      const std::vector<int32_t>& ids = recorded.at(games[i / length]);
      const bool padding = i % length >= ids.size();
      CHECK(rows.labels[i] == (padding ? -100 : ids[i % length]));
      if (!rows.mask.empty()) CHECK(rows.mask[i] == (padding ? 0 : 1));
      if (!padding) CHECK(rows.tokens[i] == ids[i % length]);
    }
  });
  folder.write("games.jsonl", lines + "{\"text\": e2e4}\n");
  CHECK(test::contains(test::error_of([&] {
                         comm::run_local_ranks(1, [&](comm::Communicator& world) {
                           tools::TrainData(world, config);
                         });
                       }),
                       "games.jsonl:4: "));
}

TEST_CASE("adopt chess: its flags") {
  const Words flags = {"--no_fsdp",
                       "--batch_size_per_device",
                       "4",
                       "--gradient_accumulation_steps",
                       "2",
                       "--learning_rate",
                       "3e-5",
                       "--max_training_steps",
                       "7",
                       "--gradient_checkpointing",
                       "--max_seq_length",
                       "300"};
  const Adopted a = adopted(flags);
  CHECK(a.config.fsdp.options.strategy == comm::Strategy::kNoShard);
  CHECK(a.config.train.rows_per_pass == 4);
  CHECK(a.config.train.micro_steps == 2);
  CHECK(a.config.train.lr == 3e-5);
  CHECK(a.config.train.steps == 7);
  CHECK(a.config.train.epochs == 0);
  CHECK(a.config.train.recompute.mode == RecomputeMode::kFull);
  CHECK(a.config.data.sequence_length == 300);
  const Adopted ran = adopted(flags, {.literal = true});
  CHECK(ran.config.data.sequence_length == 512);
  CHECK(ran.says("--max_seq_length 300: the script does not use it: 512"));
  CHECK(adopted({"--no_layer_wrap_policy"}).config.fsdp.wrap == config::Wrap::kNone);
  CHECK(adopted({"--max_training_steps", "-1"}).config.train.epochs == 1);
}

TEST_CASE("adopt chess: mistakes") {
  const std::string script = test::adopt_fixture("chess_finetune.sh").string();
  CHECK(refusal({script}) == script +
                                 ": expected the words of a command, got a file. A shell can hand "
                                 "them over: NAME() { fsdp adopt chess -- \"$@\"; }; . " +
                                 script + " (NAME: the first word of the command)");
  CHECK(adopted({"OMP_NUM_THREADS=3", "torchrun", "chess_finetune.py"})
            .config.runtime.launch.threads == 3);
}

}  // namespace
}  // namespace fsdp::adopt
