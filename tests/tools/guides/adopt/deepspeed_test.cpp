// DeepSpeed's JSON: a usual file for ZeRO-3, stages, batches, optimizers, mistakes.
#include <doctest/doctest.h>

#include "core/error.h"
#include "optim/optimizer_kind.h"
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
  CHECK(c.train.optimizer.decay == Decay::kAll);
  CHECK(c.train.lr == 3e-5);
  CHECK(c.train.schedule.kind == optim::ScheduleKind::kLinear);
  CHECK(c.train.schedule.warmup == 100);
  CHECK(c.train.schedule.total == 1000);
  CHECK(c.train.dtype == DType::kF16);
  CHECK(c.train.loss_scale.initial == 65536);
  CHECK(c.train.loss_scale.interval == 1000);
  // DeepSpeed ends the run at an overflow with this scale: a scale of half of it would follow.
  CHECK(c.train.loss_scale.minimum == 0.5);
  CHECK_FALSE(c.train.loss_scale.floor.has_value());
  CHECK(c.train.reduce_dtype == DType::kF16);
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
  const std::string adam = "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.1";
  CHECK(adopted(adam + "}}}").config.train.optimizer.kind == optim::OptimizerKind::kAdamW);
  CHECK(adopted(adam + ", \"adam_w_mode\": false}}}").config.train.optimizer.kind ==
        optim::OptimizerKind::kAdam);
  const auto other = [](const std::string& type, const std::string& params) {
    return adopted("{\"optimizer\": {\"type\": \"" + type + "\", \"params\": {" + params + "}}}")
        .config.optimizer();
  };
  const optim::OptimizerOptions adamax = other("Adamax", "\"betas\": [0.5, 0.75]");
  CHECK(adamax.kind == optim::OptimizerKind::kAdamax);
  CHECK(adamax.beta2 == 0.75);
  const optim::OptimizerOptions adadelta = other("Adadelta", "\"rho\": 0.75, \"eps\": 0.5");
  CHECK(adadelta.kind == optim::OptimizerKind::kAdadelta);
  CHECK(adadelta.rho == 0.75);
  CHECK(adadelta.epsilon == 0.5);
  for (const char* name : {"adamw", "ADAMW", "Adam"}) {
    const Adopted a = adopted(std::string("{\"optimizer\": {\"type\": \"") + name + "\"}}");
    CHECK(a.config.train.optimizer.kind == optim::OptimizerKind::kAdamW);
    CHECK(a.config.train.lr == 0.001);  // DeepSpeed's
  }
  // torch.optim has SGD; sgd is a module there.
  CHECK(adopted("{\"optimizer\": {\"type\": \"SGD\"}}").config.train.optimizer.kind ==
        optim::OptimizerKind::kSgd);
}

TEST_CASE("adopt deepspeed: precision, values of transformers' integration, mistakes") {
  CHECK(adopted("{\"bf16\": {\"enabled\": true}}").config.train.dtype == DType::kBF16);
  const Adopted a = adopted("{\"train_batch_size\": \"auto\", \"fp16\": {\"enabled\": \"auto\"}}");
  CHECK(a.says("train_batch_size: auto (ds.json:1): TrainingArguments say it: fsdp adopt hf"));
  CHECK(
      adopted("{\n\t\"train_batch_size\": 8,\n\t\"zero_optimization\": {}\n}").config.train.batch ==
      8);
}

// Defaults: runtime/lr_schedules.py, runtime/constants.py, runtime/fp16/loss_scaler.py.
TEST_CASE("adopt deepspeed: without a scheduler the rate stays") {
  using optim::ScheduleKind;
  CHECK(adopted("{\"train_batch_size\": 8}").config.train.schedule.kind == ScheduleKind::kConstant);
  // What is "auto" is filled in by TrainingArguments, and so is the scheduler.
  CHECK(adopted("{\"train_batch_size\": \"auto\"}").config.train.schedule.kind ==
        ScheduleKind::kLinear);
  CHECK(adopted("{\"scheduler\": {\"type\": \"auto\"}}").config.train.schedule.kind ==
        config::TrainConfig().train.schedule.kind);
  const Adopted nameless = adopted("{\"scheduler\": {\"params\": {\"warmup_num_steps\": 2}}}");
  CHECK(nameless.config.train.schedule.warmup == 0);
  CHECK(nameless.says("warmup_num_steps: 2 (ds.json:1): no effect without a scheduler.type"));
}

std::string scheduler(const std::string& type, const std::string& params) {
  return "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 3e-5}},\n\"scheduler\": "
         "{\"type\": \"" +
         type + "\", \"params\": {" + params + "}}}";
}

TEST_CASE("adopt deepspeed: the defaults of schedulers, and whose rate counts") {
  Adopted a = adopted(scheduler("WarmupDecayLR", "\"total_num_steps\": 5000"));
  CHECK(a.config.train.schedule.warmup == 1000);
  CHECK(a.config.train.lr == 0.001);
  CHECK(
      a.says("optimizer.params.lr: 3e-5 (ds.json:1): the scheduler sets its own: "
             "scheduler.params.warmup_max_lr, by default 0.001"));
  a = adopted(scheduler("WarmupLR", "\"warmup_max_lr\": 0.00003"));
  CHECK(a.config.train.lr == 3e-5);  // the same number
  CHECK_FALSE(a.says("the scheduler sets its own"));
  a = adopted(scheduler("WarmupLR", "\"warmup_max_lr\": 2, \"warmup_num_steps\": 7"));
  CHECK(a.config.train.lr == 2);
  CHECK(a.config.train.schedule.warmup == 7);
  CHECK(a.says("the scheduler sets its own: scheduler.params.warmup_max_lr, 2"));
  a = adopted(scheduler("WarmupLR", "\"warmup_max_lr\": \"auto\", \"warmup_num_steps\": \"auto\""));
  CHECK(a.config.train.lr == 3e-5);
  CHECK(a.config.train.schedule.warmup == 0);
}

TEST_CASE("adopt deepspeed: warm-ups and the cosine's end, said or by default") {
  using optim::ScheduleKind;
  const std::string total = "\"total_num_steps\": 5000, \"warmup_num_steps\": 10";
  for (const char* said : {"", ", \"cos_min_ratio\": 0.0001"}) {
    const Adopted a = adopted(scheduler("WarmupCosineLR", total + said));
    CHECK(a.config.train.schedule.kind == ScheduleKind::kCosineWithMinLr);
    CHECK(a.config.train.schedule.min_lr == doctest::Approx(3e-9).epsilon(1e-6));
    CHECK(a.config.train.lr == 3e-5);
  }
  const Adopted zero = adopted(scheduler("WarmupCosineLR", total + ", \"cos_min_ratio\": 0"));
  CHECK(zero.config.train.schedule.kind == ScheduleKind::kCosine);
  for (const char* shape : {"", ", \"warmup_type\": \"log\""}) {
    const Adopted a = adopted(scheduler("WarmupLR", "\"warmup_max_lr\": 1" + std::string(shape)));
    CHECK(a.says("its warm-up is logarithmic, here it is linear"));
  }
  CHECK_FALSE(adopted(scheduler("WarmupLR", "\"warmup_type\": \"linear\"")).says("logarithmic"));
  CHECK(test::contains(refusal(scheduler("WarmupLR", "\"warmup_min_lr\": 1e-6")),
                       "warmup_min_lr: 1e-6: a warm-up begins at 0 here"));
  // Another scheduler's parameters: its name is what is wrong, or the parameter.
  CHECK(test::contains(refusal(scheduler("OneCycle", "\"cycle_min_lr\": 1, \"cycle_max_lr\": 2")),
                       "ds.json:2: scheduler.type: expected WarmupLR, WarmupDecayLR or"));
  CHECK(refusal(scheduler("WarmupLR", "\"cycle_min_lr\": 1")) ==
        "ds.json:2: scheduler.params.cycle_min_lr: 1: WarmupLR does not have it");
  CHECK(test::contains(refusal(scheduler("WarmupLR", "\"cycle_mim_lr\": 1")), "unknown key"));
}

TEST_CASE("adopt deepspeed: loss scales and the dtype of gradient sums") {
  const auto scaled = [](const std::string& keys, int stage) {
    return adopted("{\"fp16\": {\"enabled\": true" + keys +
                   "}, \"zero_optimization\": {\"stage\": " + std::to_string(stage) + "}}");
  };
  const config::LossScaleSection zero = scaled("", 2).config.train.loss_scale;
  CHECK(zero.interval == 1000);
  CHECK(zero.minimum == 0.5);  // min_loss_scale 1: an overflow there ends the run
  const config::LossScaleSection plain =
      scaled(", \"min_loss_scale\": 4", 0).config.train.loss_scale;
  CHECK(plain.floor == 4);  // without ZeRO the scale stays there
  CHECK_FALSE(plain.minimum.has_value());
  // A static scale never changes.
  const Adopted fixed = scaled(", \"loss_scale\": 128, \"loss_scale_window\": 7", 2);
  CHECK(fixed.config.train.loss_scale.initial == 128);
  CHECK(fixed.config.train.loss_scale.growth == 1);
  CHECK(fixed.config.train.loss_scale.backoff == 1);
  CHECK_FALSE(fixed.config.train.loss_scale.interval.has_value());
  CHECK(fixed.says("fp16.loss_scale_window: 7 (ds.json:1): no effect with fp16.loss_scale"));
  CHECK(scaled("", 2).config.train.reduce_dtype == DType::kF16);
  CHECK(adopted("{\"bf16\": {\"enabled\": true}}").config.train.reduce_dtype == DType::kBF16);
  CHECK(adopted("{\"bf16\": {\"enabled\": true}, \"communication_data_type\": \"fp32\"}")
            .config.train.reduce_dtype == DType::kF32);
  CHECK_FALSE(adopted("{\"train_batch_size\": 8}").config.train.reduce_dtype.has_value());
  const Adopted cast = adopted(
      "{\"torch_autocast\": {\"enabled\": true, \"dtype\": \"bfloat16\", "
      "\"lower_precision_safe_modules\": [\"torch.nn.Linear\"]}}");
  CHECK(cast.config.train.dtype == DType::kBF16);
  CHECK_FALSE(cast.config.train.reduce_dtype.has_value());
}

TEST_CASE("adopt deepspeed: a division wholly before the sum is not half of one") {
  const Adopted a = adopted("{\"prescale_gradients\": true}");
  CHECK_FALSE(a.config.fsdp.options.split_division);
  CHECK(
      a.says("prescale_gradients: true (ds.json:1): the mean over ranks is formed inside the sum"));
}

// runtime/zero/config.py: its model takes the names of attributes as well as their aliases
// (populate_by_name of runtime/config_utils.py).
TEST_CASE("adopt deepspeed: keys of stage 3 without stage3_, bfloat16, a truth for a stage") {
  const Adopted a = adopted(
      "{\"zero_optimization\": {\"stage\": 3, \"max_live_parameters\": 1e9, "
      "\"max_reuse_distance\": 0, \"prefetch_bucket_size\": 5e7, "
      "\"gather_16bit_weights_on_model_save\": true, \"param_persistence_threshold\": \"auto\"}, "
      "\"bfloat16\": {\"enabled\": true}}");
  CHECK(a.config.fsdp.options.strategy == comm::Strategy::kFullShard);
  CHECK(a.says("zero_optimization.max_live_parameters: 1e9 (ds.json:1): fsdp.units_in_flight"));
  CHECK(
      a.says("zero_optimization.gather_16bit_weights_on_model_save: true (ds.json:1): the saved"));
  CHECK(a.says("param_persistence_threshold: auto (ds.json:1): TrainingArguments say it"));
  CHECK(a.config.train.dtype == DType::kBF16);
  CHECK(adopted("{\"zero_optimization\": true}").config.fsdp.options.strategy ==
        comm::Strategy::kShardOptimizer);
}

// runtime/config.py asks for the keys it knows; its models forbid others inside their sections.
TEST_CASE("adopt deepspeed: keys at the top that DeepSpeed does not read are noted") {
  const Adopted a = adopted(
      "{\"_comment\": \"made by hand\", \"comms_config\": {\"verbose\": true, \"deep\": {\"a\": "
      "1}},\n"
      " \"_zero_optimization\": {\"stage\": 3}, \"my_notes\": [1, 2], \"owner\": \"auto\",\n"
      " \"train_batch_size\": 8, \"compile\": {\"deepcompile\": true}}");
  CHECK(a.config.train.batch == 8);
  CHECK(a.config.fsdp.options.strategy == comm::Strategy::kNoShard);
  CHECK(a.says("#   _comment: made by hand (ds.json:1): DeepSpeed does not read it"));
  CHECK(a.says("#   comms_config.deep.a: 1 (ds.json:1): DeepSpeed does not read it"));
  CHECK(a.says("#   _zero_optimization.stage: 3 (ds.json:2): DeepSpeed does not read it"));
  CHECK(a.says("#   my_notes: 1,2 (ds.json:2): DeepSpeed does not read it"));
  CHECK(a.says("#   compile.deepcompile: true (ds.json:3): there is no graph compiler"));
  for (const char* mistyped :
       {"{\"zero_optimizaton\": {\"stage\": 3}}", "{\"gradient_clip\": 1}",
        "{\"Fp16\": {\"enabled\": 1}}", "{\"zero_optimization\": {\"_comment\": \"x\"}}",
        "{\"optimiser\": {\"type\": \"Adam\"}}"}) {
    CAPTURE(mistyped);
    CHECK(test::contains(refusal(mistyped), "ds.json:1: unknown key \""));
  }
}

}  // namespace
}  // namespace fsdp::adopt
