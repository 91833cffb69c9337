// fairseq-train's command line: the guide's, in a script and typed, and mistakes.
#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/adopted.h"

namespace fsdp::adopt {
namespace {

using test::Adopted;
using Words = std::vector<std::string>;

Adopted adopted(const Words& words) { return Adopted(adopt_fairseq(words, {})); }
std::string refusal(const Words& words) {
  return test::error_of([&] { adopt_fairseq(words, {}); });
}

TEST_CASE("adopt fairseq: the guide's command for 13B on 8 GPUs") {
  const Adopted a = adopted({test::adopt_fixture("fairseq_13b.sh").string()});
  const config::TrainConfig& c = a.config;
  CHECK(c.model.preset == "transformer_lm_gpt3_13");
  CHECK(c.data.format == data::TextFormat::kFairseq);
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
  CHECK(c.train.loss_scale.rule == config::LossScaling::kFairseq);
  CHECK(c.train.loss_scale.initial == 4);
  CHECK(c.train.recompute.mode == RecomputeMode::kFull);
  CHECK_FALSE(c.train.save);
  CHECK(c.train.log_every == 1);
  CHECK(c.train.seed == 1);
  CHECK(c.fsdp.options.strategy == comm::Strategy::kFullShard);
  CHECK(c.runtime.launch.threads == 20);
  CHECK(a.says("mpirun -n 8 "));  // CUDA_VISIBLE_DEVICES
  CHECK(c.fsdp.options.offload == comm::Offload::kAll);
  CHECK(c.train.log_format == config::LogFormat::kFairseqJson);
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

TEST_CASE("adopt fairseq: without validation") {
  const Adopted a = adopted({"data-bin/x", "--disable-validation"});
  CHECK(a.config.data.train == std::vector<std::string>{"data-bin/x/train.bin"});
  CHECK(a.config.data.validation.empty());
}

TEST_CASE("adopt fairseq: options of sharding") {
  const Adopted a =
      adopted({"--ddp-backend", "fully_sharded", "--fp16", "--fp32-reduce-scatter",
               "--no-reshard-after-forward", "--update-freq", "2", "--min-params-to-wrap", "1000",
               "--use-sharded-state", "--bucket-cap-mb", "25"});
  CHECK(a.config.train.reduce_dtype == DType::kF32);
  CHECK(a.config.fsdp.options.reshard_after_forward == false);
  CHECK(a.config.train.micro_steps == 2);
  CHECK(a.config.fsdp.wrap == config::Wrap::kTransformerBlock);
  CHECK(a.says("--bucket-cap-mb 25: a unit is what is communicated at once"));
  CHECK(a.says("--use-sharded-state: a checkpoint is always sharded"));
}

TEST_CASE("adopt fairseq: offloaded activations are recomputed, also where that is not said") {
  for (const Words& words :
       {Words{"--offload-activations"}, {"--checkpoint-activations", "--offload-activations"}}) {
    CHECK(adopted(words).config.train.recompute.mode == RecomputeMode::kOffload);
  }
}

TEST_CASE("adopt fairseq: mistakes") {
  CHECK(refusal({"--cpu-offload", "--ddp-backend", "fully_sharded"}) ==
        "fairseq: --cpu-offload: true: expected --fp16 with it, as fairseq does");
  CHECK(refusal({"--fp16", "--bf16"}) ==
        "fairseq: --bf16: true: expected one of --fp16 and --bf16, got both");
  CHECK(test::contains(refusal({"--optimizer", "adafactor"}),
                       "fairseq: --optimizer: expected adam, cpu_adam, sgd or nag"));
  CHECK(refusal({"--warmup-update", "5"}) ==
        "fairseq: unknown key \"--warmup-update\" of fairseq-train; the nearest is "
        "\"--warmup-updates\"");
  CHECK(refusal({"--lr"}) == "fairseq: --lr: expected a value, got none");
  CHECK(refusal({"--lr", "--fp16"}) == "fairseq: --lr: expected a value, got none");
  CHECK(refusal({"--lr", "1", "--lr", "2"}) ==
        "fairseq: --lr: given twice, with different values: 1 and 2");
  CHECK(refusal({"--task", "translation"}) ==
        "fairseq: --task: expected language_modeling, got \"translation\"");
  CHECK(test::contains(refusal({"--arch", "transformer_wmt"}), "fairseq: --arch: expected "));
  CHECK(test::contains(refusal({"--arch", "transformer_lm_gpt3_12"}),
                       "fairseq: --arch: expected transformer_lm_gpt3_small to "));
  CHECK(test::contains(refusal({test::adopt_fixture("env_vars.sh").string()}),
                       "env_vars.sh: expected a script that calls fairseq-train"));
  CHECK(refusal({}) == "adopt fairseq: expected a file or a command, got nothing");
}

}  // namespace
}  // namespace fsdp::adopt
