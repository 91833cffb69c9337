// DeepSpeed's configuration: batch, optimizer, schedule, precision, ZeRO.
// Contract: tools/adopt/programs.h, tools/adopt/deepspeed_keys.h.
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/error.h"
#include "tools/adopt/deepspeed_keys.h"
#include "tools/adopt/programs.h"
#include "tools/adopt/read_tree.h"

namespace fsdp::adopt {
namespace {

const char* const kBucket =
    "a unit is what is communicated at once: fsdp.wrap, fsdp.min_num_params";
const char* const kQuantized = "collectives are not quantised here";
const char* const kFlat = "gradients of a unit lie in one flat buffer, always";
const char* const kParts = "train.recompute, whose memory is not divided further";

std::vector<Rule> batch_rules() {
  return {
      {"train_batch_size", together},
      {"train_micro_batch_size_per_gpu", whole_to("train.rows_per_pass")},
      {"gradient_accumulation_steps", together},
      {"gradient_clipping", to("train.clip_norm")},
      {"steps_per_print", whole_to("train.log_every")},
      {"dataloader_drop_last", on_to("data.last_batch", "drop_last")},
      {"communication_data_type", to("train.reduce_dtype")},
      {"data_types.grad_accum_dtype", same("gradients add up in train.reduce_dtype or f32")},
      {"prescale_gradients", on_to("fsdp.split_division", "true")},
      {"gradient_predivide_factor", leave("fsdp.split_division divides before and after the sum")},
      {"sparse_gradients", leave("gradients are dense")},
      {"disable_allgather", leave("a parameter is gathered where it is sharded")},
      {"wall_clock_breakdown",
       leave("runtime.trace writes a timeline; the closing table has times")},
      {"memory_breakdown", leave("the closing table has memory by category, always")},
      {"dump_state", leave("run_args.json and config.yaml lie in the run directory")},
      {"seed", whole_to("train.seed")},
      {"vocabulary_size", leave("model.path or the tokenizer says it")},
      {"graph_harvesting", leave("no CUDA graphs yet")},
      {"zero_allow_untested_optimizer", leave("every optimizer here is tested with sharding")},
      {"zero_force_ds_cpu_optimizer", leave("there is one implementation of each optimizer")},
      {"amp.*", refuse("Apex is not here: expected bf16 or fp16")},
      {"activation_checkpointing.*", leave(kParts)},
      {"checkpoint.*", leave("checkpoints are sharded and are read on any number of ranks")},
      {"flops_profiler.*", leave("fsdp explain, fsdp bench step")},
      {"comms_logger.*", leave("runtime.trace; the closing table has bytes per collective")},
      {"tensorboard.*", leave("metrics.jsonl lies in the run directory")},
      {"wandb.*", leave("metrics.jsonl lies in the run directory")},
      {"csv_monitor.*", leave("metrics.jsonl lies in the run directory")},
      {"aio.*", leave("16 pieces of 1 MiB are in flight, for each stream")},
      {"autotuning.*", leave("fsdp memory says what fits")},
      {"elasticity.*", leave("a checkpoint is read on any number of ranks")},
      {"sparse_attention.*", refuse("attention is dense here")},
      {"pipeline.*", refuse("there is no pipeline parallelism here")},
      {"tensor_parallel.*", refuse("there is no tensor parallelism here")},
      {"progressive_layer_drop.*", refuse("layers are not dropped here")},
      {"curriculum_learning.*", refuse("the order of data is that of data.shuffle")},
      {"data_efficiency.*", refuse("the order of data is that of data.shuffle")},
      {"compression_training.*", refuse("models are not compressed here")},
      {"eigenvalue.*", leave("of compression, which is not here")},
  };
}

std::vector<Rule> precision_rules() {
  return {
      {"fp16.enabled", together},
      {"fp16.loss_scale", together},
      {"fp16.initial_scale_power", together},
      {"fp16.loss_scale_window", whole_to("train.loss_scale.interval")},
      {"fp16.min_loss_scale", to("train.loss_scale.floor")},
      {"fp16.hysteresis",
       same("the scale falls at every overflow; train.loss_scale.tolerance allows some")},
      {"fp16.consecutive_hysteresis", leave("see hysteresis")},
      {"fp16.auto_cast", leave("data are token ids; computing casts by itself")},
      {"fp16.fused_mode", leave("optimizers are one kernel for a shard")},
      {"fp16.fp16_master_weights_and_grads", refuse("master weights are f32 here")},
      {"bf16.enabled", together},
      {"bf16.immediate_grad_update", leave("gradients add up in place, always")},
      {"bf16.check_grad_overflow", leave("a loss that is no number ends the run")},
      {"bf16.bf16_master_weights_and_grads", refuse("master weights are f32 here")},
  };
}

std::vector<Rule> optimizer_rules() {
  return {
      {"optimizer.type", together},
      {"optimizer.legacy_fusion", leave("optimizers are one kernel for a shard")},
      {"optimizer.params.lr", to("train.lr")},
      {"optimizer.params.betas",
       [](const Given& given, Adoption& adoption) {
         if (given.values.size() != 2) given.fail("two numbers");
         adoption.set("train.optimizer.beta1", given.values[0], given);
         adoption.set("train.optimizer.beta2", given.values[1], given);
       }},
      {"optimizer.params.eps", to("train.optimizer.epsilon")},
      {"optimizer.params.weight_decay", to("train.optimizer.weight_decay")},
      {"optimizer.params.momentum", to("train.optimizer.momentum")},
      {"optimizer.params.dampening", to("train.optimizer.dampening")},
      {"optimizer.params.nesterov", truth_to("train.optimizer.nesterov")},
      {"optimizer.params.bias_correction",
       [](const Given& given, Adoption& adoption) {
         if (!given.truth()) given.refuse("moments are always corrected for their start here");
         adoption.leave(given, "always");
       }},
      {"optimizer.params.amsgrad", refuse("there is no AMSGrad here")},
      {"optimizer.params.torch_adam", leave("there is one implementation of each optimizer")},
      {"optimizer.params.adam_w_mode", together},
      {"scheduler.type", together},
      {"scheduler.params.warmup_num_steps", whole_to("train.schedule.warmup")},
      {"scheduler.params.total_num_steps", whole_to("train.schedule.total")},
      {"scheduler.params.warmup_max_lr", to("train.lr")},
      {"scheduler.params.warmup_min_lr", refuse("a warm-up begins at 0 here")},
      {"scheduler.params.warmup_type", together},
      {"scheduler.params.warmup_min_ratio", refuse("a warm-up begins at 0 here")},
      {"scheduler.params.cos_min_ratio",
       refuse("the cosine ends at 0 here; see cosine_with_min_lr")},
      {"scheduler.params.last_batch_iteration", leave("--resume knows where it is")},
  };
}

std::string zero_key(const char* name) { return std::string("zero_optimization.") + name; }

std::vector<Rule> zero_rules() {
  const auto key = zero_key;
  return {
      {key("stage"), take_zero_stage},
      {key("offload_optimizer.device"), take_offload},
      {key("offload_param.device"), take_offload},
      {key("offload_optimizer.*"), leave("see its device")},
      {key("offload_param.*"), leave("see its device")},
      {key("cpu_offload"), take_offload},
      {key("cpu_offload_param"), take_offload},
      {key("cpu_offload_use_pin_memory"), leave("see its device")},
      {key("overlap_comm"),
       same("gathers and reduces have their own streams: fsdp.forward_prefetch, backward_prefetch, "
            "separate_reduce")},
      {key("contiguous_gradients"), same(kFlat)},
      {key("reduce_scatter"), same("a sharded gradient is reduced by a reduce-scatter, always")},
      {key("allgather_partitions"), same("a sharded unit is gathered by one all-gather, always")},
      {key("reduce_bucket_size"), same(kBucket)},
      {key("allgather_bucket_size"), same(kBucket)},
      {key("use_multi_rank_bucket_allreduce"), same(kBucket)},
      {key("sub_group_size"), same("the optimizer's step is one kernel for a unit's shard")},
      {key("zero_quantized_weights"), leave(kQuantized)},
      {key("zero_quantized_nontrainable_weights"), leave(kQuantized)},
      {key("zero_quantized_gradients"), leave(kQuantized)},
      {key("zeropp_loco_param.*"), leave(kQuantized)},
      {key("ignore_unused_parameters"),
       same("a parameter without gradient stands still; fsdp.absent_is_zero")},
      {key("round_robin_gradients"), leave(kFlat)},
      {key("load_from_fp32_weights"), same("master weights are read in full precision")},
      {key("elastic_checkpoint"), leave("a checkpoint is read on any number of ranks")},
      {key("legacy_stage1"), leave("of old versions")},
  };
}

std::vector<Rule> stage_three_rules() {
  const auto key = zero_key;
  return {
      {key("stage3_prefetch_bucket_size"), same("fsdp.prefetch_depth counts units")},
      {key("stage3_max_live_parameters"), same("fsdp.units_in_flight counts units")},
      {key("stage3_max_reuse_distance"), same("fsdp.units: reshard_after_forward of some units")},
      {key("stage3_param_persistence_threshold"),
       same("a small parameter travels with its block's unit")},
      {key("stage3_model_persistence_threshold"),
       same("a small parameter travels with its block's unit")},
      {key("stage3_module_granularity_threshold"), same(kBucket)},
      {key("stage3_use_all_reduce_for_fetch_params"), leave("a unit is gathered in place")},
      {key("stage3_allgather_sequential"), leave(kBucket)},
      {key("stage3_gather_16bit_weights_on_model_save"),
       same("the saved model is whole; train.save_dtype: bf16 or f16")},
      {key("stage3_gather_fp16_weights_on_model_save"),
       same("the saved model is whole; train.save_dtype: bf16 or f16")},
      {key("gather_16bit_weights_on_model_save"),
       same("the saved model is whole; train.save_dtype: bf16 or f16")},
      {key("zero_hpz_partition_size"),
       [](const Given& given, Adoption& adoption) {
         if (given.whole() > 1)
           adoption.set("fsdp.reshard_group_size", std::to_string(given.whole()), given);
         else
           adoption.off(given);
       }},
      {key("mics_shard_size"), together},
      {key("mics_hierarchical_params_gather"), leave("a gather inside a node is one all-gather")},
      {key("memory_efficient_linear"), same("a product keeps its input alone")},
      {key("override_module_apply"), leave("of torch")},
      {key("pipeline_loading_checkpoint"), leave("of pipelines, which are not here")},
      {key("log_trace_cache_warnings"), leave("the order of units is known before the first step")},
      {key("enable_sanity_checks"), leave("ranks compare their settings at the start, always")},
  };
}

// ---- keys that are read together ----

bool is_auto(const Given& given) { return given.values.size() == 1 && given.values[0] == "auto"; }

// Two of batch, rows of a pass and micro-steps are enough; all three say the number of ranks.
void take_batch(Adoption& adoption) {
  const Given* batch = adoption.find("train_batch_size");
  const Given* rows = adoption.find("train_micro_batch_size_per_gpu");
  const Given* micro = adoption.find("gradient_accumulation_steps");
  if (micro) whole_to("train.micro_steps")(*micro, adoption);
  if (!batch) return;
  if (rows && micro) {
    const int64_t per_rank = rows->whole() * micro->whole();
    if (per_rank < 1 || batch->whole() % per_rank != 0) {
      batch->fail(fmt::format("a multiple of {} x {}, rows of a pass and accumulation steps",
                              rows->whole(), micro->whole()));
    }
    adoption.set_ranks(batch->whole() / per_rank, *batch);
  }
  whole_to("train.batch")(*batch, adoption);
}

void take_precision(Adoption& adoption) {
  const Given* half = adoption.find("fp16.enabled");
  const Given* brain = adoption.find("bf16.enabled");
  const bool f16 = half && half->truth();
  if (f16 && brain && brain->truth()) brain->refuse("expected one of fp16 and bf16, got both");
  if (brain) on_to("train.dtype", "bf16")(*brain, adoption);
  if (half) on_to("train.dtype", "f16")(*half, adoption);
  const Given* scale = adoption.find("fp16.loss_scale");
  if (scale && f16 && scale->number() > 0) {
    adoption.set("train.loss_scale.initial", scale->one(), *scale);
    adoption.set("train.loss_scale.growth", "1", *scale, "a scale that does not grow");
  } else if (scale) {
    adoption.off(*scale);
  }
  const Given* power = adoption.find("fp16.initial_scale_power");
  if (!power) return;
  if (power->whole() < 0 || power->whole() > 126) power->fail("a power of two from 0 to 126");
  if (!adoption.has("train.loss_scale.initial")) {
    adoption.set("train.loss_scale.initial",
                 fmt::format("{}", std::exp2(static_cast<double>(power->whole()))), *power);
  }
}

void take_optimizer(Adoption& adoption) {
  const Given* type = adoption.find("optimizer.type");
  if (!type) return;
  const std::string& name = type->one();
  const Given* decoupled = adoption.find("optimizer.params.adam_w_mode");
  std::string kind = name == "AdamW" || name == "Adam" ? "adamw" : name == "SGD" ? "sgd" : "";
  if (kind.empty()) type->fail("Adam, AdamW or SGD: the optimizers that work on shards here");
  if (name == "Adam" && decoupled && !decoupled->truth()) kind = "adam";
  adoption.set("train.optimizer.kind", kind, *type,
               name == "Adam" && kind == "adamw" ? "DeepSpeed's Adam decays as AdamW" : "");
  if (decoupled) adoption.leave(*decoupled, "train.optimizer.kind says it");
  adoption.set_default("train.optimizer.weight_decay", "0", "DeepSpeed's default");
  if (kind == "sgd") return;
  adoption.set_default("train.optimizer.beta1", "0.9", "DeepSpeed's default");
  adoption.set_default("train.optimizer.beta2", "0.999", "DeepSpeed's default");
  adoption.set_default("train.optimizer.decay", "all",
                       "DeepSpeed decays every parameter it is given");
}

void take_schedule(Adoption& adoption) {
  const Given* type = adoption.find("scheduler.type");
  const Given* warmup = adoption.find("scheduler.params.warmup_type");
  if (warmup && warmup->one() != "linear") warmup->refuse("a warm-up is linear here");
  if (warmup) adoption.leave(*warmup, "a warm-up is linear");
  if (!type) return;
  const auto kinds = std::to_array<std::pair<const char*, const char*>>(
      {{"WarmupLR", "constant"}, {"WarmupDecayLR", "linear"}, {"WarmupCosineLR", "cosine"}});
  for (const auto& [theirs, ours] : kinds) {
    if (type->one() != theirs) continue;
    adoption.set("train.schedule.kind", ours, *type,
                 warmup ? "" : "its warm-up is logarithmic, here it is linear");
    return;
  }
  type->fail("WarmupLR, WarmupDecayLR or WarmupCosineLR");
}

void take_mics(Adoption& adoption) {
  const Given* size = adoption.find("zero_optimization.mics_shard_size");
  if (!size) return;
  if (size->whole() <= 1) return adoption.off(*size);
  const Given* stage = adoption.find("zero_optimization.stage");
  if (!stage || stage->whole() != 3) size->refuse("expected zero_optimization.stage 3 with it");
  adoption.set("fsdp.shard_size", std::to_string(size->whole()), *size);
}

}  // namespace

void take_zero_stage(const Given& given, Adoption& adoption) {
  constexpr std::array kStages = {"no_shard", "shard_optimizer", "shard_grad_op", "full_shard"};
  const int64_t stage = given.whole();
  if (stage < 0 || stage > 3) given.fail("0, 1, 2 or 3");
  const Given* mics = adoption.find("zero_optimization.mics_shard_size");
  const bool hybrid = stage == 3 && mics && mics->whole() > 1;
  adoption.set("fsdp.strategy", hybrid ? "hybrid_shard" : kStages[static_cast<size_t>(stage)],
               given);
}

namespace {

// To a disk all goes: what either of the two devices says.
void take_offload_to_disk(const Given& given, Adoption& adoption) {
  const std::vector<Given>& all = adoption.given();
  const auto path = std::find_if(all.begin(), all.end(), [](const Given& each) {
    return each.name.ends_with("nvme_path") && !is_off(each);
  });
  if (path == all.end()) given.fail("nvme_path beside it, a folder of the disk");
  adoption.set("fsdp.offload", "nvme", given);
  adoption.set("fsdp.offload_folder", path->one(), *path);
}

}  // namespace

// The optimizer's, or all: parameters are not offloaded alone here.
void take_offload(const Given& given, Adoption& adoption) {
  const auto on_disk = [](const Given& each) {
    return (each.name.ends_with("offload_param.device") ||
            each.name.ends_with("offload_param_device") ||
            each.name.ends_with("offload_optimizer.device") ||
            each.name.ends_with("offload_optimizer_device")) &&
           !is_off(each) && each.one() == "nvme";
  };
  const auto of_parameters = [&](const Given& each) {
    return (each.name.ends_with("offload_param.device") ||
            each.name.ends_with("offload_param_device") ||
            each.name.ends_with("cpu_offload_param")) &&
           !is_off(each);
  };
  if (is_off(given)) return adoption.off(given);
  const std::vector<Given>& all = adoption.given();
  if (std::any_of(all.begin(), all.end(), on_disk)) return take_offload_to_disk(given, adoption);
  const bool parameters = std::any_of(all.begin(), all.end(), of_parameters);
  adoption.set("fsdp.offload", parameters ? "all" : "optimizer", given);
}

const Program& deepspeed_program() {
  static const Program program = program_of(
      "deepspeed", "DeepSpeed",
      {batch_rules(), precision_rules(), optimizer_rules(), zero_rules(), stage_three_rules()});
  return program;
}

std::string adopt_deepspeed(const std::filesystem::path& file, const AdoptOptions& options) {
  std::vector<Given> given, from_arguments;
  for (const Given& each : read_tree(file)) {
    (is_auto(each) ? from_arguments : given).push_back(each);
  }
  Adoption adoption("deepspeed", file.string(), given, options);
  for (const Given& each : from_arguments) {
    check_known(deepspeed_program(), each, adoption);
    adoption.leave(each, "TrainingArguments say it: fsdp adopt hf");
  }
  take_all(deepspeed_program(), adoption);
  take_batch(adoption);
  take_precision(adoption);
  take_optimizer(adoption);
  take_schedule(adoption);
  take_mics(adoption);
  adoption.set_default("train.clip_norm", "0", "DeepSpeed's default: no clipping");
  adoption.set_default("fsdp.strategy", "no_shard", "DeepSpeed's default: stage 0");
  return adoption.yaml();
}

}  // namespace fsdp::adopt
