// TrainingArguments: the workshop's and the template's, the grammar of `fsdp` and its conflicts.
// Requirements: S1.12, S2.2, S2.7.
#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/adopted.h"

namespace fsdp::adopt {
namespace {

using test::Adopted;

Adopted adopted(const std::string& yaml, const AdoptOptions& options = {}) {
  const test::TempFolder folder;
  return Adopted(adopt_hugging_face(folder.write("a.yaml", yaml), options));
}

std::string refusal(const std::string& yaml) {
  const test::TempFolder folder;
  const auto file = folder.write("a.yaml", yaml);
  const std::string error = test::error_of([&] { adopt_hugging_face(file, {}); });
  return error.starts_with(folder.path().string()) ? error.substr(folder.path().string().size() + 1)
                                                   : error;
}

TEST_CASE("adopt hf: the template guide's file") {
  const Adopted a(adopt_hugging_face(test::adopt_fixture("template_config.yaml"), {}));
  const config::TrainConfig& c = a.config;
  CHECK(c.model.path == "EleutherAI/pythia-1b");
  CHECK(c.data.sequence_length == 512);
  CHECK(c.train.epochs == 1);
  CHECK(c.train.rows_per_pass == 8);
  CHECK(c.train.micro_steps == 4);
  CHECK(c.train.lr == 1.5e-5);
  CHECK(c.train.schedule.kind == optim::ScheduleKind::kCosine);
  CHECK(c.train.schedule.warmup == 200);
  CHECK(c.train.optimizer.weight_decay == 0.01);
  CHECK(c.train.optimizer.beta2 == 0.999);
  CHECK(c.train.dtype == DType::kF16);
  CHECK(c.train.reduce_dtype == DType::kF16);
  CHECK(c.train.log_every == 1);
  CHECK(c.checkpoint.every.steps == 10);
  CHECK(c.checkpoint.keep == 2);
  CHECK(c.fsdp.options.strategy == comm::Strategy::kFullShard);
  CHECK(c.fsdp.wrap == config::Wrap::kSize);
  CHECK(c.fsdp.min_num_params == 1000000);
  CHECK(c.fsdp.units_in_flight == 2);
  CHECK(c.fsdp.forward_prefetch);
  CHECK(c.fsdp.sync_module_states);
  // Without a text to evaluate on it would be refused: it waits as a comment.
  CHECK(a.line("# eval_every: 10").find("no effect without data.validation") != std::string::npos);
  CHECK(a.says("trainer.data.dataset_name: wikitext (template_config.yaml:13): data are files"));
  CHECK(a.says("hydra.job.name: llm_finetune_distributed"));
}

TEST_CASE("adopt hf: the workshop's arguments: what they mean, and what ran") {
  const auto file = test::adopt_fixture("workshop_trainer.json");
  const Adopted meant(adopt_hugging_face(file, {}));
  CHECK(meant.config.fsdp.wrap == config::Wrap::kTransformerBlock);
  CHECK(meant.config.fsdp.wrap_classes == std::vector<std::string>{"BloomBlock"});
  CHECK(meant.config.train.dtype == DType::kF16);
  CHECK(meant.config.train.reduce_dtype == DType::kF32);
  CHECK(meant.config.fsdp.options.backward_prefetch == comm::BackwardPrefetch::kPost);
  CHECK(meant.config.checkpoint.every.epoch);
  CHECK(meant.config.checkpoint.keep == 4);
  CHECK(meant.config.train.epochs == 5);
  CHECK(meant.says("nothing there turns wrapping on: the whole model was one unit"));
  for (const char* waits :
       {"# eval_every: epoch", "# best: validation_loss", "# load_best: true"}) {
    CAPTURE(waits);
    CHECK(meant.line(waits) != "");
  }
  const Adopted ran(adopt_hugging_face(file, {.literal = true}));
  CHECK(ran.config.fsdp.wrap == config::Wrap::kNone);
  CHECK(ran.config.fsdp.wrap_classes.empty());
  CHECK(ran.config.train.reduce_dtype == DType::kF16);
  CHECK(
      ran.says("reduce_dtype: float32 (workshop_trainer.json:25): transformers does not read it"));
}

TEST_CASE("adopt hf: the words of fsdp") {
  using comm::Strategy;
  const auto strategy = [](const std::string& words) {
    return adopted("fsdp: " + words + "\n", {.ranks_per_node = 2}).config.fsdp.options.strategy;
  };
  CHECK(strategy("full_shard") == Strategy::kFullShard);
  CHECK(strategy("true") == Strategy::kFullShard);
  CHECK(strategy("\"shard_grad_op auto_wrap\"") == Strategy::kShardGradOp);
  CHECK(strategy("[auto_wrap, shard_grad_op, offload]") == Strategy::kShardGradOp);
  CHECK(strategy("no_shard") == Strategy::kNoShard);
  CHECK(strategy("hybrid_shard auto_wrap") == Strategy::kHybridShard);
  CHECK(strategy("hybrid_shard_zero2") == Strategy::kHybridShardZero2);
  CHECK(strategy("auto_wrap") == Strategy::kFullShard);
  CHECK(strategy("\"\"") == Strategy::kNoShard);
  CHECK(adopted("seed: 1\n").config.fsdp.options.strategy == Strategy::kNoShard);
  CHECK(adopted("fsdp: full_shard offload\n").config.fsdp.options.offload == comm::Offload::kAll);
  CHECK(adopted("fsdp: full_shard\n").config.fsdp.options.offload == comm::Offload::kNone);

  CHECK(refusal("fsdp: full_shard shard_grad_op\n") ==
        "a.yaml:1: fsdp: expected one strategy, got \"full_shard shard_grad_op\"");
  CHECK(refusal("fsdp: offload\n") ==
        "a.yaml:1: fsdp: expected a strategy beside offload, such as \"full_shard offload\", got "
        "\"offload\"");
  CHECK(test::contains(refusal("fsdp: full_shrad\n"), "a.yaml:1: fsdp: expected words out of "));
  CHECK(refusal("fsdp: full_shard auto_wrap\nfsdp_config: {min_num_params: 5, "
                "transformer_layer_cls_to_wrap: A}\n") ==
        "a.yaml:2: fsdp_config.min_num_params: 5: expected it or transformer_layer_cls_to_wrap, "
        "got both");
}

TEST_CASE("adopt hf: contradictions") {
  CHECK(refusal("fp16: true\nbf16: true\n") ==
        "a.yaml:2: bf16: true: expected one of fp16 and bf16, got both");
  CHECK(refusal("gradient_checkpointing: true\nfsdp: full_shard\n"
                "fsdp_config: {activation_checkpointing: true}\n") ==
        "a.yaml:3: fsdp_config.activation_checkpointing: true: expected it or "
        "gradient_checkpointing to be true, got both");
  CHECK(test::contains(refusal("eval_strategy: steps\neval_steps: 5\nload_best_model_at_end: true\n"
                               "greater_is_better: true\n"),
                       "a.yaml:4: greater_is_better: true: the best checkpoint has the smallest"));
}

TEST_CASE("adopt hf: how long, how often") {
  Adopted a = adopted("max_steps: 20\nnum_train_epochs: 3\nwarmup_ratio: 0.1\n");
  CHECK(a.config.train.steps == 20);
  CHECK(a.config.train.epochs == 0);
  CHECK(a.config.train.schedule.warmup == 2);
  CHECK(a.says("num_train_epochs: 3 (a.yaml:2): max_steps counts more"));
  a = adopted("max_steps: -1\nnum_train_epochs: 2.0\nwarmup_ratio: 0.1\nsave_strategy: \"no\"\n");
  CHECK(a.config.train.epochs == 2);
  CHECK(a.config.checkpoint.every.steps == 0);
  CHECK(a.says("warmup_ratio: 0.1 (a.yaml:3): no counterpart yet"));
  a = adopted("seed: 7\n");  // TrainingArguments' own defaults
  CHECK(a.config.train.epochs == 3);
  CHECK(a.config.train.rows_per_pass == 8);
  CHECK(a.config.train.lr == 5e-5);
  CHECK(a.config.train.schedule.kind == optim::ScheduleKind::kLinear);
  CHECK(a.config.train.optimizer.weight_decay == 0);
  CHECK(a.config.checkpoint.every.steps == 500);
  CHECK(a.config.train.log_every == 500);
  CHECK(refusal("num_train_epochs: 0.5\n") ==
        "a.yaml:1: num_train_epochs: expected an integer, got \"0.5\"");
}

TEST_CASE("adopt hf: fsdp_config in a file of its own") {
  const test::TempFolder folder;
  folder.write("fsdp.json",
               "{\"fsdp_min_num_params\": 2000, \"backward_prefetch\": \"backward_pre\"}");
  const auto file = folder.write(
      "a.json", "{\"fsdp\": \"full_shard auto_wrap\", \"fsdp_config\": \"fsdp.json\"}");
  const Adopted a(adopt_hugging_face(file, {}));
  CHECK(a.config.fsdp.min_num_params == 2000);
  CHECK(a.line("min_num_params: 2000").find("(fsdp.json:1)") != std::string::npos);
}

TEST_CASE("adopt hf: mistakes") {
  CHECK(refusal("learning_rat: 1e-4\n") ==
        "a.yaml:1: unknown key \"learning_rat\" of TrainingArguments; the nearest is "
        "\"learning_rate\"");
  CHECK(refusal("learning_rate: fast\n") ==
        "a.yaml:1: learning_rate: train.lr: expected a number, got \"fast\"");
  CHECK(test::contains(refusal("optim: adafactor\n"),
                       "a.yaml:1: optim: expected adamw_torch, sgd, adamax or adadelta"));
  CHECK(test::contains(refusal("lr_scheduler_type: linaer\n"),
                       "a.yaml:1: lr_scheduler_type: train.schedule.kind: expected one of "));
  CHECK(
      test::contains(refusal("max_grad_norm: -1\n"), "a.yaml:1: max_grad_norm: train.clip_norm: "));
  CHECK(test::contains(refusal("label_smoothing_factor: 0.1\n"), "labels are not smoothed here"));
  CHECK(test::contains(refusal("distributed_type: FSDP\nmixed_precision: bf16\n"),
                       "fsdp adopt accelerate reads it"));
}

}  // namespace
}  // namespace fsdp::adopt
