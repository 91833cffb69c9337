// DeepSpeed's configuration: what is done with its keys, each by itself (tables/deepspeed.json) or
// together. Defaults: DeepSpeed's runtime/constants.py, runtime/lr_schedules.py,
// runtime/fp16/loss_scaler.py. Contract: tools/guides/adopt/programs.h, deepspeed.h.
#include "tools/guides/adopt/deepspeed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "tools/guides/adopt/programs.h"
#include "tools/guides/adopt/read_tree.h"

namespace fsdp::adopt {

const Json& deepspeed_json();  // tables/deepspeed.json

namespace {

const std::string kDefault = "DeepSpeed's default";
const std::string kSchedule = "scheduler.params.";

// Two of batch, rows of a pass and micro-steps are enough; all three say the number of ranks.
void take_batch(Adoption& adoption) {
  const Given* batch = adoption.find("train_batch_size");
  const Given* rows = adoption.find("train_micro_batch_size_per_gpu");
  const Given* micro = adoption.find("gradient_accumulation_steps");
  if (micro) count_to("train.micro_steps")(*micro, adoption);
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

// torch.autocast around a model in f32: the dtype of compute, as train.dtype.
void take_autocast(Adoption& adoption) {
  const Given* enabled = adoption.find("torch_autocast.enabled");
  const Given* dtype = adoption.find("torch_autocast.dtype");
  const bool on = enabled && enabled->truth();
  if (on && !dtype) enabled->refuse("expected torch_autocast.dtype with it: bfloat16 or float16");
  if (on) adoption.leave(*enabled, "train.dtype says it");
  if (enabled && !on) adoption.off(*enabled);
  if (!dtype) return;
  const bool f16 = dtype->one() == "float16" || dtype->one() == "fp16";
  if (!f16 && dtype->one() != "bfloat16" && dtype->one() != "bf16") {
    dtype->fail("bfloat16 or float16");
  }
  if (on)
    adoption.set("train.dtype", f16 ? "f16" : "bf16", *dtype);
  else
    adoption.leave(*dtype, "no effect without torch_autocast.enabled");
}

// The scale at which DeepSpeed gives up: with ZeRO the run ends at an overflow there, so the scale
// may not fall to its half; without ZeRO the scale stays there.
void set_least_scale(Adoption& adoption, const Given* given) {
  const bool sharded = adoption.value_of("fsdp.strategy") != "no_shard";
  const char* const key = sharded ? "train.loss_scale.minimum" : "train.loss_scale.floor";
  const double least = given ? given->number() : 1;
  const std::string value = fmt::format("{}", sharded ? least / 2 : least);
  const char* const remark = "at this scale an overflow ends the run";
  if (!given)
    adoption.set_default(key, value, kDefault + (sharded ? ": at 1 an overflow ends the run" : ""));
  else
    adoption.set(key, value, *given, sharded ? remark : "");
}

void take_scale(Adoption& adoption) {
  const Given* scale = adoption.find("fp16.loss_scale");
  const Given* power = adoption.find("fp16.initial_scale_power");
  const Given* window = adoption.find("fp16.loss_scale_window");
  const Given* least = adoption.find("fp16.min_loss_scale");
  if (scale && scale->number() > 0) {
    adoption.set("train.loss_scale.initial", scale->one(), *scale);
    adoption.set("train.loss_scale.growth", "1", *scale, "a scale that never changes");
    adoption.set("train.loss_scale.backoff", "1", *scale, "a scale that never changes");
    for (const Given* unused : {power, window, least}) {
      if (unused) adoption.leave(*unused, "no effect with fp16.loss_scale, which never changes");
    }
    return;
  }
  if (scale) adoption.off(*scale);
  if (power && (power->whole() < 0 || power->whole() > 126)) {
    power->fail("a power of two from 0 to 126");
  }
  if (power) {
    adoption.set("train.loss_scale.initial",
                 fmt::format("{}", std::exp2(static_cast<double>(power->whole()))), *power);
  }
  if (window) whole_to("train.loss_scale.interval")(*window, adoption);
  if (least) set_least_scale(adoption, least);
}

void take_precision(Adoption& adoption) {
  const Given* half = adoption.find("fp16.enabled");
  const Given* brain = adoption.find("bf16.enabled");
  if (half && half->truth() && brain && brain->truth()) {
    brain->refuse("expected one of fp16 and bf16, got both");
  }
  if (brain) on_to("train.dtype", "bf16")(*brain, adoption);
  if (half) on_to("train.dtype", "f16")(*half, adoption);
  take_scale(adoption);
  set_deepspeed_precision(adoption);
  take_autocast(adoption);  // its gradients stay f32
}

constexpr auto kTorchKinds = std::to_array<std::pair<const char*, const char*>>(
    {{"SGD", "sgd"}, {"Adamax", "adamax"}, {"Adadelta", "adadelta"}});

void take_optimizer(Adoption& adoption) {
  const Given* type = adoption.find("optimizer.type");
  const Given* decoupled = adoption.find("optimizer.params.adam_w_mode");
  if (decoupled && !type) adoption.leave(*decoupled, "no effect without optimizer.type");
  if (!type) return;
  // DeepSpeed lowers the case of its own optimizers. The others are names of torch.optim.
  const bool adam = lower(type->one()) == "adam";
  std::string kind = adam || lower(type->one()) == "adamw" ? "adamw" : "";
  for (const auto& [theirs, ours] : kTorchKinds) {
    if (type->one() == theirs) kind = ours;
  }
  if (kind.empty()) {
    type->fail("Adam, AdamW, Adamax, Adadelta or SGD: the optimizers that work on shards here");
  }
  if (adam && decoupled && !decoupled->truth()) kind = "adam";
  adoption.set("train.optimizer.kind", kind, *type,
               adam && kind == "adamw" ? "DeepSpeed's Adam decays as AdamW" : "");
  if (decoupled) adoption.leave(*decoupled, "train.optimizer.kind says it");
  adoption.set_default("train.optimizer.weight_decay", "0", kDefault);
  if (kind == "sgd") return;
  if (kind != "adadelta") {
    adoption.set_default("train.optimizer.beta1", "0.9", kDefault);
    adoption.set_default("train.optimizer.beta2", "0.999", kDefault);
  }
  adoption.set_default("train.optimizer.decay", "all",
                       "DeepSpeed decays every parameter it is given");
}

// The schedule's peak. WarmupLR and WarmupDecayLR set the rate by themselves, whatever the
// optimizer's is. Nothing where TrainingArguments say it.
std::optional<double> take_rate(Adoption& adoption, const Given* type,
                                const std::set<std::string>& automatic) {
  const Given* lr = adoption.find("optimizer.params.lr");
  const Given* most = adoption.find(kSchedule + "warmup_max_lr");
  const bool by_schedule = type && type->one() != "WarmupCosineLR";
  if (by_schedule && !automatic.contains(kSchedule + "warmup_max_lr")) {
    const double rate = most ? most->number() : 0.001;
    if (most) to("train.lr")(*most, adoption);
    if (lr && lr->number() == rate) to("train.lr")(*lr, adoption);
    if (lr && lr->number() != rate) {
      adoption.leave(*lr, fmt::format("the scheduler sets its own: {}warmup_max_lr, {}{}",
                                      kSchedule, most ? "" : "by default ", rate));
    }
    adoption.set_default("train.lr", "0.001", kDefault + " of " + kSchedule + "warmup_max_lr");
    return rate;
  }
  if (lr) {
    to("train.lr")(*lr, adoption);
    return lr->number();
  }
  if (!adoption.find("optimizer.type") || automatic.contains("optimizer.params.lr")) return {};
  adoption.set_default("train.lr", "0.001", kDefault);
  return 0.001;
}

// The cosine falls to a share of the peak.
void take_cosine_end(Adoption& adoption, const Given& type, std::optional<double> rate,
                     const std::string& remark) {
  const Given* given = adoption.find(kSchedule + "cos_min_ratio");
  const double share = given ? given->number() : 0.0001;
  const bool to_zero = share == 0 || !rate;
  adoption.set("train.schedule.kind", to_zero ? "cosine" : "cosine_with_min_lr", type, remark);
  if (given && share == 0) return adoption.off(*given);
  if (!rate) {
    const std::string line =
        "train.schedule.kind: cosine_with_min_lr, with this share of train.lr "
        "as train.schedule.min_lr";
    return given ? adoption.leave(*given, line)
                 : adoption.note(
                       fmt::format("the cosine ends at {} of train.lr there: {}", share, line));
  }
  const std::string end = fmt::format("{:.9g}", share * *rate);
  const std::string of_peak = fmt::format("{} of the peak", share);
  if (given) return adoption.set("train.schedule.min_lr", end, *given, of_peak);
  adoption.set_default("train.schedule.min_lr", end, kDefault + ": " + of_peak);
}

// Every parameter of a scheduler that is none of `known`.
void refuse_others(Adoption& adoption, const Given& type, const std::vector<std::string>& known) {
  for (const Given& given : adoption.given()) {
    if (!given.name.starts_with(kSchedule)) continue;
    const std::string name = given.name.substr(kSchedule.size());
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      given.refuse(type.one() + " does not have it");
    }
  }
}

void take_warmup(Adoption& adoption, const std::set<std::string>& automatic) {
  const auto find = [&](const char* name) { return adoption.find(kSchedule + name); };
  if (const Given* steps = find("warmup_num_steps"))
    whole_to("train.schedule.warmup")(*steps, adoption);
  else if (!automatic.contains(kSchedule + "warmup_num_steps"))
    adoption.set_default("train.schedule.warmup", "1000", kDefault);
  for (const char* name : {"warmup_min_lr", "warmup_min_ratio"}) {
    const Given* least = find(name);
    if (least && least->number() != 0) least->refuse("a warm-up begins at 0 here");
    if (least) adoption.off(*least);
  }
  if (const Given* shape = find("warmup_type")) {
    if (shape->one() != "linear" && shape->one() != "log") shape->fail("linear or log");
    adoption.leave(*shape, "a warm-up is linear here");
  }
}

// Without a scheduler the rate stays, unless TrainingArguments bring one.
void take_no_schedule(Adoption& adoption, const std::set<std::string>& automatic) {
  for (const Given& given : adoption.given()) {
    if (given.name.starts_with(kSchedule)) {
      adoption.leave(given, "no effect without a scheduler.type");
    }
  }
  if (automatic.contains("scheduler.type")) return;
  if (automatic.empty())
    adoption.set_default("train.schedule.kind", "constant", kDefault);
  else
    adoption.set_default("train.schedule.kind", "linear",
                         "TrainingArguments' default, which fill in what is \"auto\"");
}

void take_schedule(Adoption& adoption, const std::set<std::string>& automatic) {
  const Given* type = adoption.find("scheduler.type");
  if (!type) {
    take_rate(adoption, nullptr, automatic);
    return take_no_schedule(adoption, automatic);
  }
  const bool cosine = type->one() == "WarmupCosineLR", decays = type->one() == "WarmupDecayLR";
  if (!cosine && !decays && type->one() != "WarmupLR") {
    type->fail("WarmupLR, WarmupDecayLR or WarmupCosineLR");
  }
  std::vector<std::string> known = {"warmup_num_steps", "warmup_type", "last_batch_iteration"};
  if (cosine)
    known.insert(known.end(), {"total_num_steps", "warmup_min_ratio", "cos_min_ratio"});
  else
    known.insert(known.end(), {"warmup_min_lr", "warmup_max_lr"});
  if (decays) known.push_back("total_num_steps");
  refuse_others(adoption, *type, known);
  const Given* shape = adoption.find(kSchedule + "warmup_type");
  const bool linear = shape && shape->one() == "linear";
  const std::string remark = linear ? "" : "its warm-up is logarithmic, here it is linear";
  take_warmup(adoption, automatic);
  const std::optional<double> rate = take_rate(adoption, type, automatic);
  if (cosine)
    take_cosine_end(adoption, *type, rate, remark);
  else
    adoption.set("train.schedule.kind", decays ? "linear" : "constant", *type, remark);
  const Given* total = adoption.find(kSchedule + "total_num_steps");
  if (total) whole_to("train.schedule.total")(*total, adoption);
  const Given* last = adoption.find(kSchedule + "last_batch_iteration");
  if (last) adoption.leave(*last, "--resume knows the step");
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

void set_deepspeed_precision(Adoption& adoption) {
  const std::string dtype = adoption.value_of("train.dtype");
  const bool f16 = dtype == "f16" || dtype == "fp16";
  if (!f16 && dtype != "bf16") return;
  adoption.set_default("train.reduce_dtype", f16 ? "f16" : "bf16",
                       kDefault + ": gradients are added up in the dtype of compute; f32 is safer");
  if (!f16 || adoption.value_of("train.loss_scale.growth") == "1") return;
  adoption.set_default("train.loss_scale.interval", "1000", kDefault);
  if (!adoption.has("train.loss_scale.minimum") && !adoption.has("train.loss_scale.floor")) {
    set_least_scale(adoption, nullptr);
  }
}

namespace {

// Batch, precision, optimizer, schedule, and defaults that are not ours. `automatic`: keys whose
// value is "auto", which TrainingArguments fill in.
void take_together(Adoption& adoption, const std::set<std::string>& automatic) {
  adoption.set_default("fsdp.strategy", "no_shard", kDefault + ": stage 0");
  take_batch(adoption);
  take_precision(adoption);
  take_optimizer(adoption);
  take_schedule(adoption, automatic);
  take_mics(adoption);
  adoption.set_default("train.clip_norm", "0", kDefault + ": no clipping");
}

void take_betas(const Given& given, Adoption& adoption) {
  if (given.values.size() != 2) given.fail("two numbers");
  adoption.set("train.optimizer.beta1", given.values[0], given);
  adoption.set("train.optimizer.beta2", given.values[1], given);
}

void take_bias_correction(const Given& given, Adoption& adoption) {
  if (!given.truth()) given.refuse("moments are always corrected for their start here");
  adoption.leave(given, "always");
}

// zero_optimization: true.
void take_old_form(const Given& given, Adoption& adoption) {
  if (given.is_list) return adoption.off(given);  // an empty section
  adoption.set("fsdp.strategy", given.truth() ? "shard_optimizer" : "no_shard", given);
}

void take_secondary_shards(const Given& given, Adoption& adoption) {
  if (given.whole() > 1)
    adoption.set("fsdp.reshard_group_size", std::to_string(given.whole()), given);
  else
    adoption.off(given);
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
    Program made = program_of(
        "deepspeed", "DeepSpeed",
        {rules_of(deepspeed_json()["rules"], {{"betas", take_betas},
                                              {"bias_correction", take_bias_correction},
                                              {"old_form", take_old_form},
                                              {"offload", take_offload},
                                              {"secondary_shards", take_secondary_shards},
                                              {"zero_stage", take_zero_stage}})});
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
  take_together(adoption, automatic);
  return adoption.yaml();
}

}  // namespace fsdp::adopt
