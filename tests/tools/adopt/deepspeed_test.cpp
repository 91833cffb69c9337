// DeepSpeed's JSON: a usual file for ZeRO-3, stages, batches, optimizers, mistakes.
#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/adopted.h"

namespace fsdp::adopt {
namespace {

using test::Adopted;

Adopted adopted(const std::string& json) {
  const test::TempFolder folder;
  return Adopted(adopt_deepspeed(folder.write("ds.json", json), {}));
}

std::string refusal(const std::string& json) {
  const test::TempFolder folder;
  const auto file = folder.write("ds.json", json);
  const std::string error = test::error_of([&] { adopt_deepspeed(file, {}); });
  return error.starts_with(folder.path().string()) ? error.substr(folder.path().string().size() + 1)
                                                   : error;
}

TEST_CASE("adopt deepspeed: a file for ZeRO-3") {
  const Adopted a(adopt_deepspeed(test::adopt_fixture("deepspeed_zero3.json"), {}));
  const config::TrainConfig& c = a.config;
  CHECK(c.fsdp.options.strategy == comm::Strategy::kFullShard);
  CHECK(c.train.batch == 64);
  CHECK(c.train.rows_per_pass == 4);
  CHECK(c.train.micro_steps == 2);
  CHECK(a.says("train_batch_size: 64 (deepspeed_zero3.json:2): mpirun -n 8 "));  // 64 / (4 * 2)
  CHECK(c.train.clip_norm == 1);
  CHECK(c.train.optimizer.beta1 == 0.8);
  CHECK(c.train.optimizer.weight_decay == 3e-7);
  CHECK(c.train.optimizer.decay == config::Decay::kAll);
  CHECK(c.train.lr == 3e-5);
  CHECK(c.train.schedule.kind == optim::ScheduleKind::kLinear);
  CHECK(c.train.schedule.warmup == 100);
  CHECK(c.train.schedule.total == 1000);
  CHECK(c.train.dtype == DType::kF16);
  CHECK(c.train.loss_scale.initial == 65536);
  CHECK(c.train.loss_scale.interval == 1000);
  CHECK(c.train.loss_scale.floor == 1);
  for (const char* left :
       {"reduce_bucket_size: 5e8", "stage3_prefetch_bucket_size: 5e7", "overlap_comm: true",
        "stage3_gather_16bit_weights_on_model_save: true"}) {
    CAPTURE(left);
    CHECK(a.says("#   zero_optimization." + std::string(left) + " (deepspeed_zero3.json:"));
  }
  CHECK(a.says("zero_optimization.offload_param.device"));
  CHECK(c.fsdp.options.offload == comm::Offload::kOptimizer);
}

TEST_CASE("adopt deepspeed: stages") {
  using comm::Strategy;
  const std::vector<Strategy> stages = {Strategy::kNoShard, Strategy::kShardOptimizer,
                                        Strategy::kShardGradOp, Strategy::kFullShard};
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const Adopted a =
        adopted("{\"zero_optimization\": {\"stage\": " + std::to_string(stage) + "}}");
    CHECK(a.config.fsdp.options.strategy == stages[stage]);
  }
  CHECK(adopted("{\"train_batch_size\": 8}").config.fsdp.options.strategy == Strategy::kNoShard);
  const Adopted mics = adopted("{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 4}}");
  CHECK(mics.config.fsdp.options.strategy == Strategy::kHybridShard);
  CHECK(mics.config.fsdp.shard_size == 4);
  const Adopted hpz =
      adopted("{\"zero_optimization\": {\"stage\": 3, \"zero_hpz_partition_size\": 8}}");
  CHECK(hpz.config.fsdp.reshard_group_size == 8);
  CHECK(refusal("{\"zero_optimization\": {\"stage\": 4}}") ==
        "ds.json:1: zero_optimization.stage: expected 0, 1, 2 or 3, got \"4\"");
}

TEST_CASE("adopt deepspeed: offload of the optimizer, of parameters, to NVMe") {
  const auto offload = [](const std::string& keys) {
    return adopted("{\"zero_optimization\": {\"stage\": 3, " + keys + "}}")
        .config.fsdp.options.offload;
  };
  const std::string optimizer = "\"offload_optimizer\": {\"device\": \"cpu\"}";
  CHECK(offload(optimizer) == comm::Offload::kOptimizer);
  CHECK(offload("\"offload_param\": {\"device\": \"cpu\"}") == comm::Offload::kAll);
  CHECK(offload(optimizer + ", \"offload_param\": {\"device\": \"cpu\"}") == comm::Offload::kAll);
  CHECK(offload(optimizer + ", \"offload_param\": {\"device\": \"none\", \"pin_memory\": true}") ==
        comm::Offload::kOptimizer);
  CHECK(offload("\"cpu_offload\": true") == comm::Offload::kOptimizer);
  const Adopted nvme = adopted(
      "{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"nvme\", "
      "\"nvme_path\": \"/disk\"}, \"offload_param\": {\"device\": \"cpu\"}}}");
  CHECK(nvme.config.fsdp.options.offload == comm::Offload::kNvme);
  CHECK(nvme.config.fsdp.offload_folder == "/disk");
}

TEST_CASE("adopt deepspeed: batches, optimizers, schedules") {
  CHECK(
      refusal("{\"train_batch_size\": 10, \"train_micro_batch_size_per_gpu\": 4,\n"
              " \"gradient_accumulation_steps\": 2}") ==
      "ds.json:1: train_batch_size: expected a multiple of 4 x 2, rows of a pass and accumulation "
      "steps, got \"10\"");
  const std::string adam = "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.1";
  CHECK(adopted(adam + "}}}").config.train.optimizer.kind == optim::OptimizerKind::kAdamW);
  CHECK(adopted(adam + ", \"adam_w_mode\": false}}}").config.train.optimizer.kind ==
        optim::OptimizerKind::kAdam);
  CHECK(test::contains(refusal("{\"optimizer\": {\"type\": \"Lamb\"}}"),
                       "ds.json:1: optimizer.type: expected Adam, AdamW or SGD"));
  CHECK(refusal("{\"scheduler\": {\"type\": \"OneCycle\"}}") ==
        "ds.json:1: scheduler.type: expected WarmupLR, WarmupDecayLR or WarmupCosineLR, got "
        "\"OneCycle\"");
  CHECK(refusal("{\"scheduler\": {\"params\": {\"warmup_max_lr\": 2}},\n"
                "\"optimizer\": {\"params\": {\"lr\": 1}}}") ==
        "ds.json:2: optimizer.params.lr: 1 contradicts scheduler.params.warmup_max_lr: 2 "
        "(ds.json:1)");
}

TEST_CASE("adopt deepspeed: precision, values of transformers' integration, mistakes") {
  CHECK(adopted("{\"bf16\": {\"enabled\": true}}").config.train.dtype == DType::kBF16);
  CHECK(refusal("{\"fp16\": {\"enabled\": true},\n\"bf16\": {\"enabled\": true}}") ==
        "ds.json:2: bf16.enabled: true: expected one of fp16 and bf16, got both");
  const Adopted a = adopted("{\"train_batch_size\": \"auto\", \"fp16\": {\"enabled\": \"auto\"}}");
  CHECK(a.says("train_batch_size: auto (ds.json:1): TrainingArguments say it: fsdp adopt hf"));
  CHECK(refusal("{\"zero_optimisation\": {\"stage\": 3}}") ==
        "ds.json:1: unknown key \"zero_optimisation.stage\" of DeepSpeed; the nearest is "
        "\"zero_optimization.stage\"");
  CHECK(test::contains(refusal("{\"train_batch_sise\": \"auto\"}"),
                       "unknown key \"train_batch_sise\""));
  CHECK(test::contains(refusal("{\"train_batch_size\": 8.5}"), "expected an integer, got \"8.5\""));
  CHECK(
      adopted("{\n\t\"train_batch_size\": 8,\n\t\"zero_optimization\": {}\n}").config.train.batch ==
      8);
}

}  // namespace
}  // namespace fsdp::adopt
