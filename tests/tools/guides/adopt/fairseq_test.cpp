// fairseq-train's command line: the guide's, and mistakes.
#include <doctest/doctest.h>

#include "core/error.h"
#include "optim/optimizer_kind.h"
#include "tests/support/adopted.h"
#include "tools/config/guests.h"
#include "tools/guides/fairseq_data.h"
#include "tools/guides/log_lines.h"

namespace fsdp::adopt {
namespace {

using test::Adopted;
using Words = std::vector<std::string>;

Adopted adopted(const Words& words) { return Adopted(adopt_fairseq(words, {})); }
std::string refusal(const Words& words) {
  return test::error_of([&] { adopt_fairseq(words, {}); });
}

TEST_CASE("adopt fairseq: the guide's command for 13B on 8 GPUs") {
  const Adopted a = adopted(test::words_of(test::adopt_fixture("fairseq_13b.sh")));
  const config::TrainConfig& c = a.config;
  CHECK(c.model.preset == "transformer_lm_gpt3_13");
  CHECK(c.data.format.guest == &data::kFairseqData);
  CHECK(c.data.train ==
        std::vector<std::string>{"data-bin/wikitext-103-roberta-bpe-bin/train.bin"});
  CHECK(c.data.validation ==
        std::vector<std::string>{"data-bin/wikitext-103-roberta-bpe-bin/valid.bin"});
  CHECK(c.data.sequence_length == 2048);
  CHECK(c.train.rows_per_pass == 8);
  CHECK(c.train.steps == 10);
  CHECK(c.train.lr == 1e-4);
  CHECK(c.train.schedule.kind == optim::ScheduleKind::kFairseqPolynomialDecay);
  CHECK(c.train.schedule.warmup == 5);
  CHECK(c.train.schedule.total == 10);
  CHECK(c.train.optimizer.kind == optim::OptimizerKind::kAdamW);
  CHECK(c.train.optimizer.beta2 == 0.98);
  CHECK(c.train.optimizer.weight_decay == 0);
  CHECK(c.train.clip_norm == 0);
  CHECK(c.train.dtype == DType::kF16);
  CHECK(c.train.reduce_dtype == DType::kF16);
  CHECK(c.train.loss_scale.rule.guest->name == "fairseq");
  CHECK(c.train.loss_scale.initial == 4);
  CHECK(c.train.recompute.mode == RecomputeMode::kFull);
  CHECK_FALSE(c.train.save);
  CHECK(c.train.log_every.steps == 1);
  CHECK(c.train.seed == 1);
  CHECK(c.fsdp.options.strategy == comm::Strategy::kFullShard);
  CHECK(c.runtime.launch.threads == 20);
  CHECK(a.says("mpirun -n 8 "));  // CUDA_VISIBLE_DEVICES
  CHECK(c.fsdp.options.offload == comm::Offload::kAll);
  CHECK(c.train.log_format.guest == &tools::kFairseqLines);
  CHECK(a.says("transformer_lm_gpt3_13_untied"));
}

TEST_CASE("adopt fairseq: typed, with and without the program's name") {
  const Words options = {"--arch=transformer_lm_gpt3_small",
                         "--lr",
                         "0.1",
                         "--ddp-backend",
                         "pytorch_ddp",
                         "--max-tokens",
                         "4096",
                         "--tokens-per-sample",
                         "1024"};
  Words whole = {"OMP_NUM_THREADS=3", "fairseq-train", "data-bin/x"};
  whole.insert(whole.end(), options.begin(), options.end());
  for (const Words& words : {options, whole}) {
    const Adopted a = adopted(words);
    CHECK(a.config.model.preset == "transformer_lm_gpt3_small");
    CHECK(a.config.train.lr == 0.1);
    CHECK(a.config.train.rows_per_pass == 4);
    CHECK(a.config.fsdp.options.strategy == comm::Strategy::kNoShard);
    CHECK(a.config.train.seed == 1);
    CHECK(a.config.runtime.launch.threads == (words.size() > options.size() ? 3 : 0));
    CHECK(a.config.data.train.size() == (words.size() > options.size() ? 1 : 0));
  }
}

TEST_CASE("adopt fairseq: lists of one value, as fairseq itself writes them") {
  const Adopted a = adopted({"x", "--update-freq", "[2]", "--lr", "[0.0001]"});
  CHECK(a.config.train.micro_steps == 2);
  CHECK(a.config.train.lr == 1e-4);
  CHECK(adopted({"x", "--update-freq", "3", "--lr", "0.1"}).config.train.micro_steps == 3);
  for (const Words& words :
       {Words{"x", "--update-freq", "[2,4]"}, {"x", "--lr", "0.1,0.2"}, {"x", "--lr", "[1, 2]"}}) {
    CHECK(test::contains(refusal(words), ": a value for each epoch: expected one"));
  }
}

TEST_CASE("adopt fairseq: without --max-update the run ends with the schedule") {
  const Words words = {"x", "--lr-scheduler", "polynomial_decay", "--total-num-update", "10"};
  const Adopted a = adopted(words);
  CHECK(a.config.train.steps == 10);
  CHECK(a.says("fairseq goes on at the end rate for ever"));
  Words limited = words;
  limited.insert(limited.end(), {"--max-epoch", "2"});
  CHECK(adopted(limited).config.train.epochs == 2);
  CHECK(
      adopted({"x"}).says("the defaults of fsdp train count: train.batch, train.lr, train.steps"));
}

TEST_CASE("adopt fairseq: without validation") {
  const Adopted a = adopted({"data-bin/x", "--disable-validation"});
  CHECK(a.config.data.train == std::vector<std::string>{"data-bin/x/train.bin"});
  CHECK(a.config.data.validation.empty());
}

TEST_CASE("adopt fairseq: where samples are broken") {
  for (const data::BreakMode mode : data::kBreakModes) {
    const std::string name(name_of(mode));
    const Adopted a = adopted({"data-bin/x", "--sample-break-mode", name, "--pad-to-fixed-length",
                               "--skip-invalid-size-inputs-valid-test"});
    CHECK(a.config.data.sample_break_mode == mode);
    const bool sentences = mode != data::BreakMode::kNone;
    CHECK(a.config.data.bad_rows == (sentences ? data::BadRows::kSkip : data::BadRows::kFail));
    CHECK(a.config.data.pad_to.has_value() == sentences);
    CHECK(a.says("data.bad_rows: skip leaves them out") == sentences);
  }
  CHECK(adopted({"data-bin/x", "--fp16"}).config.data.sample_break_mode == data::BreakMode::kNone);
}

TEST_CASE("adopt fairseq: options of sharding") {
  const Adopted a = adopted({"--ddp-backend", "fully_sharded", "--fp16", "--fp32-reduce-scatter",
                             "--no-reshard-after-forward", "--update-freq", "2",
                             "--min-params-to-wrap", "1000", "--use-sharded-state"});
  CHECK(a.config.train.reduce_dtype == DType::kF32);
  CHECK(a.config.fsdp.options.reshard_after_forward == false);
  CHECK(a.config.train.micro_steps == 2);
  CHECK(a.config.fsdp.wrap == config::Wrap::kTransformerBlock);
  CHECK(a.says("--use-sharded-state: a checkpoint is always sharded"));
}

TEST_CASE("adopt fairseq: Adamax and Adadelta") {
  const optim::OptimizerOptions adamax =
      adopted({"--optimizer", "adamax", "--adamax-betas", "(0.8, 0.98)", "--adamax-eps", "1e-6"})
          .config.optimizer();
  CHECK(adamax.kind == optim::OptimizerKind::kAdamax);
  CHECK(adamax.beta1 == 0.8);
  CHECK(adamax.beta2 == 0.98);
  CHECK(adamax.epsilon == 1e-6);
  CHECK(adopted({"--optimizer", "adamax"}).config.optimizer().beta2 == 0.999);
  const optim::OptimizerOptions adadelta =
      adopted({"--optimizer", "adadelta", "--adadelta-rho", "0.8", "--weight-decay", "0.1"})
          .config.optimizer();
  CHECK(adadelta.kind == optim::OptimizerKind::kAdadelta);
  CHECK(adadelta.rho == 0.8);
  CHECK(adadelta.epsilon == 1e-6);
  CHECK(adadelta.weight_decay == 0.1);
}

TEST_CASE("adopt fairseq: offloaded activations are recomputed, also where that is not said") {
  for (const Words& words :
       {Words{"--offload-activations"}, {"--checkpoint-activations", "--offload-activations"}}) {
    CHECK(adopted(words).config.train.recompute.mode == RecomputeMode::kOffload);
  }
}

TEST_CASE("adopt fairseq: mistakes") {
  const std::string unknown =
      "fairseq: unknown key \"--warmup-update\" of fairseq-train; the nearest is "
      "\"--warmup-updates\"";
  CHECK(refusal({"--warmup-update", "5"}) == unknown);
  CHECK(refusal({"fairseq-train", "data-bin/x", "--warmup-update", "5"}) == unknown);
  CHECK(refusal({"--warmup-update", "5", "data-bin/x", "--lr", "1"}) == unknown);
  CHECK(test::contains(refusal({test::adopt_fixture("fairseq_13b.sh").string()}),
                       "fairseq_13b.sh: expected the words of a command, got a file"));
}

TEST_CASE("adopt fairseq: a pass obeys both limits, and their multiple") {
  const auto rows = [](Words words) {
    words.insert(words.begin(), {"--tokens-per-sample", "512"});
    return adopted(words).config.train.rows_per_pass;
  };
  CHECK(rows({"--max-tokens", "2048", "--batch-size", "16"}) == 4);
  CHECK(rows({"--max-tokens", "8192", "--batch-size", "2"}) == 2);
  CHECK(rows({"--max-tokens", "8192", "--batch-size", "3"}) == 3);
  // data_utils_fast.pyx: fewer than 8 rows, or a multiple of 8.
  CHECK(rows({"--max-tokens", "5120"}) == 8);
  CHECK(rows({"--batch-size", "12"}) == 8);
  CHECK(rows({"--batch-size", "12", "--required-batch-size-multiple", "1"}) == 12);
  CHECK(rows({"--batch-size", "12", "--required-batch-size-multiple", "4"}) == 12);
  const Adopted a = adopted({"--max-tokens", "2048", "--batch-size", "16"});
  CHECK(a.says("--batch-size 16: --max-tokens allows as few rows or fewer"));
}

TEST_CASE("adopt fairseq: of two ends of a run, the one that is lost is told") {
  const Adopted a = adopted({"--max-epoch", "1", "--max-update", "100000"});
  CHECK(a.config.train.steps == 100000);
  CHECK(a.says("--max-epoch 1: lost: there the run ends at --max-epoch or --max-update"));
  CHECK(adopted({"--max-epoch", "2", "--max-update", "0"}).config.train.epochs == 2);
}

TEST_CASE("adopt fairseq: nag, dropouts, warm-ups") {
  const Adopted nag = adopted({"--optimizer", "nag"});
  CHECK(nag.config.train.optimizer.kind == optim::OptimizerKind::kSgd);
  CHECK(nag.config.train.optimizer.nesterov);
  CHECK(nag.config.train.optimizer.momentum == 0.99);
  CHECK(adopted({"--momentum", "0.5", "--optimizer", "nag"}).config.train.optimizer.momentum ==
        0.5);
  CHECK(adopted({"--optimizer", "sgd"}).config.train.optimizer.momentum == 0);
  CHECK(adopted({"--dropout", "0.1", "--attention-dropout", "1e-1"}).config.model.dropout == 0.1);
  CHECK(adopted({"--dropout", "0.1"}).says("; model.dropout is one value, of attention too"));
  const Words root = {"--lr-scheduler", "inverse_sqrt"};
  CHECK(adopted(root).config.train.schedule.warmup == 4000);
  Words start = root;
  start.insert(start.end(), {"--warmup-init-lr", "-1"});
  CHECK(adopted(start).says("--warmup-init-lr -1: a warm-up begins at 0"));
  start.back() = "1e-7";
  CHECK(test::contains(refusal(start), "--warmup-init-lr: 1e-7: a warm-up begins at 0 here"));
}

TEST_CASE("adopt fairseq: options of FSDP without it") {
  const Adopted a = adopted({"--ddp-backend", "pytorch_ddp", "--cpu-offload", "--fp16",
                             "--min-params-to-wrap", "1000", "--fp32-reduce-scatter"});
  CHECK(a.config.fsdp.options.offload == comm::Offload::kNone);
  CHECK(a.says("--cpu-offload: no effect without --ddp-backend fully_sharded"));
  CHECK(a.says("--min-params-to-wrap 1000: no effect without --ddp-backend fully_sharded"));
}

TEST_CASE("adopt fairseq: what is typed before the command is not printed") {
  const Words words = {"WANDB_API_KEY=abc", "fairseq-train", "data-bin/x"};
  const Adopted a = adopted(words);
  CHECK(a.says("# fsdp adopt fairseq -- fairseq-train data-bin/x\n"));
  CHECK(a.says("WANDB_API_KEY: (hidden)"));
  CHECK_FALSE(a.says("abc"));
  CHECK_FALSE(adopted({"KEY=abc", "--lr", "1"}).says("adopt fairseq KEY"));
  CHECK_FALSE(adopted({"srun", "--export=HF_TOKEN=abc", "fairseq-train", "--lr", "1"}).says("abc"));
}

TEST_CASE("adopt fairseq: a command without options") {
  CHECK(test::contains(test::error_of([] { adopt_fairseq({"fairseq-train"}, {}); }),
                       "expected the folder and the options of fairseq-train, got none"));
}

}  // namespace
}  // namespace fsdp::adopt
