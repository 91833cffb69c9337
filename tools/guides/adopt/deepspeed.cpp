// DeepSpeed's configuration, key by key: batch, optimizer, schedule, precision, ZeRO. Keys that are
// read together: deepspeed_keys.cpp. Contract: tools/guides/adopt/programs.h.
#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "tools/guides/adopt/deepspeed_keys.h"
#include "tools/guides/adopt/programs.h"
#include "tools/guides/adopt/read_tree.h"

namespace fsdp::adopt {
namespace {

const char* const kBucket =
    "a unit is what is communicated at once: fsdp.wrap, fsdp.min_num_params";
const char* const kQuantized = "collectives are not quantised here";
const char* const kNarrowMasters =
    "gradients add up in f32 here; train.master_dtype narrows master weights alone";
const char* const kFlat = "gradients of a unit lie in one flat buffer, always";
const char* const kParts = "train.recompute, whose memory is not divided further";

std::vector<Rule> batch_rules() {
  return {
      {"train_batch_size", together},
      {"train_micro_batch_size_per_gpu", count_to("train.rows_per_pass")},
      {"gradient_accumulation_steps", together},
      {"gradient_clipping", to("train.clip_norm")},
      {"steps_per_print", whole_to("train.log_every")},
      {"dataloader_drop_last", on_to("data.last_batch", "drop_last")},
      {"communication_data_type", to("train.reduce_dtype")},
      {"data_types.grad_accum_dtype", same("gradients add up in train.reduce_dtype or f32")},
      {"prescale_gradients",
       leave("the mean over ranks is formed inside the sum; fsdp.split_division: half of the "
             "division before it, half after it")},
      {"gradient_predivide_factor",
       leave("the mean over ranks is formed inside the sum; fsdp.split_division divides before and "
             "after it")},
      {"sparse_gradients", leave("gradients are dense")},
      {"disable_allgather", leave("a parameter is gathered where it is sharded")},
      {"wall_clock_breakdown",
       leave("runtime.trace writes a timeline; the closing table has times")},
      {"memory_breakdown", same("the closing table has memory by category, always")},
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
      {"compile.*", leave("there is no graph compiler: kernels are fused by hand")},
      {"nebula.*", leave("checkpoints are sharded and are read on any number of ranks")},
      {"datastates_ckpt.*", leave("checkpoints are sharded and are read on any number of ranks")},
      {"timers.*", leave("the closing table has times")},
      {"comet.*", leave("metrics.jsonl lies in the run directory")},
      {"hybrid_engine.*", refuse("there is no training that generates here")},
      {"quantize_training.*", refuse("models are not compressed here")},
      {"weight_quantization.*", refuse("models are not compressed here")},
      {"use_data_before_expert_parallelism", refuse("there is no expert parallelism here")},
      {"seq_parallel_communication_data_type", leave("there is no sequence parallelism here")},
  };
}

std::vector<Rule> precision_rules() {
  return {
      {"fp16.enabled", together},
      {"fp16.loss_scale", together},
      {"fp16.initial_scale_power", together},
      {"fp16.loss_scale_window", together},
      {"fp16.min_loss_scale", together},
      {"fp16.hysteresis",
       same("the scale falls at every overflow; train.loss_scale.tolerance allows some")},
      {"fp16.consecutive_hysteresis", leave("see hysteresis")},
      {"fp16.auto_cast", leave("data are token ids; computing casts by itself")},
      {"fp16.fused_mode", leave("optimizers are one kernel for a shard")},
      {"fp16.fp16_master_weights_and_grads", refuse(kNarrowMasters)},
      {"bf16.enabled", together},
      {"torch_autocast.enabled", together},
      {"torch_autocast.dtype", together},
      {"torch_autocast.lower_precision_safe_modules",
       leave("matrix products and attention compute in train.dtype, and add up in f32")},
      {"bf16.immediate_grad_update", same("gradients add up in place, always")},
      {"bf16.check_grad_overflow", leave("a loss that is no number ends the run")},
      {"bf16.bf16_master_weights_and_grads", refuse(kNarrowMasters)},
  };
}

std::vector<Rule> optimizer_rules() {
  return {
      {"optimizer.type", together},
      {"optimizer.legacy_fusion", leave("optimizers are one kernel for a shard")},
      {"optimizer.params.lr", together},
      {"optimizer.params.betas",
       [](const Given& given, Adoption& adoption) {
         if (given.values.size() != 2) given.fail("two numbers");
         adoption.set("train.optimizer.beta1", given.values[0], given);
         adoption.set("train.optimizer.beta2", given.values[1], given);
       }},
      {"optimizer.params.rho", to("train.optimizer.rho")},
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
  };
}

// Those that no scheduler has here are told apart from mistyped ones.
std::vector<Rule> schedule_rules() {
  std::vector<Rule> rules = {{"scheduler.type", together}};
  for (const char* name :
       {"warmup_num_steps", "total_num_steps", "warmup_max_lr", "warmup_min_lr", "warmup_type",
        "warmup_min_ratio", "cos_min_ratio", "last_batch_iteration",
        // OneCycle
        "cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_first_step_size",
        "cycle_second_step_size", "cycle_first_stair_count", "cycle_second_stair_count",
        "decay_step_size", "cycle_momentum", "cycle_min_mom", "cycle_max_mom", "decay_mom_rate",
        // LRRangeTest
        "lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate",
        "lr_range_test_staircase"}) {
    rules.push_back({std::string("scheduler.params.") + name, together});
  }
  return rules;
}

std::string zero_key(const char* name) { return std::string("zero_optimization.") + name; }

std::vector<Rule> zero_rules() {
  const auto key = zero_key;
  return {
      {"zero_optimization",  // its old form
       [](const Given& given, Adoption& adoption) {
         if (given.is_list) return adoption.off(given);  // an empty section
         adoption.set("fsdp.strategy", given.truth() ? "shard_optimizer" : "no_shard", given);
       }},
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
      {key("leaf_module.*"), leave("fsdp.units says what a unit is")},
      {key("zenflow.*"), refuse("all of a gradient is used in each step here")},
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

// DeepSpeed's models of its sections have two names for some keys: the alias, and the attribute.
std::string name_of(const std::string& key) {
  constexpr std::string_view kZero = "zero_optimization.", kBrain = "bfloat16.";
  constexpr std::string_view kAttributes[] = {
      "prefetch_bucket_size",         "param_persistence_threshold",
      "model_persistence_threshold",  "max_live_parameters",
      "max_reuse_distance",           "gather_16bit_weights_on_model_save",
      "module_granularity_threshold", "use_all_reduce_for_fetch_params",
      "allgather_sequential"};
  if (key.starts_with(kBrain)) return "bf16." + key.substr(kBrain.size());  // its old name
  if (!key.starts_with(kZero)) return key;
  const std::string_view last = std::string_view(key).substr(kZero.size());
  const bool attribute =
      std::find(std::begin(kAttributes), std::end(kAttributes), last) != std::end(kAttributes);
  return attribute ? fmt::format("{}stage3_{}", kZero, last) : key;
}

bool is_auto(const Given& given) { return given.values.size() == 1 && given.values[0] == "auto"; }

}  // namespace

const Program& deepspeed_program() {
  static const Program program = [] {
    Program made = program_of("deepspeed", "DeepSpeed",
                              {batch_rules(), precision_rules(), optimizer_rules(),
                               schedule_rules(), zero_rules(), stage_three_rules()});
    made.name_of = name_of;
    made.ignores_unknown = true;
    return made;
  }();
  return program;
}

std::string adopt_deepspeed(const std::filesystem::path& file, const AdoptOptions& options) {
  std::vector<Given> given, from_arguments;
  for (Given& each : read_lenient_tree(file)) {
    each.name = name_of(each.name);
    (is_auto(each) ? from_arguments : given).push_back(each);
  }
  Adoption adoption("deepspeed", file.string(), given, options);
  std::set<std::string> automatic;
  for (const Given& each : from_arguments) {
    check_known(deepspeed_program(), each, adoption);
    adoption.leave(each, "TrainingArguments say it: fsdp adopt hf");
    automatic.insert(each.name);
  }
  take_all(deepspeed_program(), adoption);
  take_deepspeed_together(adoption, automatic);
  return adoption.yaml();
}

}  // namespace fsdp::adopt
