// The chess guide's script: its flags, and what it does without one.
// Requirements: S0.2.
#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/adopted.h"

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
  CHECK(refusal({"--batch_size", "4"}) ==
        "chess: unknown key \"--batch_size\" of chess_finetune.py");
  CHECK(refusal({"--batch_size_per_devise", "4"}) ==
        "chess: unknown key \"--batch_size_per_devise\" of chess_finetune.py; the nearest is "
        "\"--batch_size_per_device\"");
  CHECK(refusal({"--no_fsdp=1"}) ==
        "chess: --no_fsdp: expected no value after a flag, got "
        "\"--no_fsdp=1\"");
  CHECK(refusal({"--learning_rate", "high"}) ==
        "chess: --learning_rate: train.lr: expected a number, got \"high\"");
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
