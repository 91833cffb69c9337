// accelerate's configuration file, which `accelerate config` writes: how ranks start, precision,
// sharding. Keys of its DeepSpeed section: deepspeed.cpp. Contract: tools/guides/adopt/programs.h.
#include <fmt/format.h>

#include "core/error.h"
#include "tools/guides/adopt/deepspeed_keys.h"
#include "tools/guides/adopt/fsdp_keys.h"
#include "tools/guides/adopt/programs.h"
#include "tools/guides/adopt/read_tree.h"

namespace fsdp::adopt {
namespace {

const char* const kLaunch = "mpirun or srun starts the ranks and connects them";

void take_machines(const Given& given, Adoption& adoption) {
  if (given.whole() < 1) given.fail("an integer from 1");
  const Given* processes = adoption.find("num_processes");
  if (processes && processes->whole() < given.whole()) {
    given.refuse("expected at most num_processes, " + processes->text());
  }
  adoption.leave(given, "mpirun --host or srun -N says which machines");
}

std::vector<Rule> top_rules() {
  return {
      {"compute_environment",
       [](const Given& given, Adoption& adoption) {
         if (given.one() != "LOCAL_MACHINE") given.fail("LOCAL_MACHINE");
         adoption.leave(given, kLaunch);
       }},
      {"distributed_type", together},
      {"mixed_precision", together},
      {"num_processes",
       [](const Given& given, Adoption& adoption) { adoption.set_ranks(given.whole(), given); }},
      {"num_machines", take_machines},
      {"machine_rank", leave(kLaunch)},
      {"main_process_ip", leave(kLaunch)},
      {"main_process_port", leave(kLaunch)},
      {"rdzv_backend", leave(kLaunch)},
      {"same_network", leave(kLaunch)},
      {"mpirun_config.*", leave(kLaunch)},
      {"main_training_function", leave("the program is fsdp train")},
      {"debug", same("fsdp train compares what ranks do at the start, always")},
      {"use_cpu", on_to("runtime.backend", "cpu")},
      {"gpu_ids", leave("CUDA_VISIBLE_DEVICES says which GPUs are used")},
      {"enable_cpu_affinity", leave("mpirun --bind-to does that")},
      {"dynamo_config.*", leave("there is no graph compiler: kernels are fused by hand")},
      {"dynamo_backend", leave("there is no graph compiler: kernels are fused by hand")},
      {"fp8_config.*", refuse("there is no 8-bit compute here")},
      {"downcast_bf16", leave("of TPUs")},
      {"tpu_*", leave("there are no TPUs here")},
      {"command_file", leave("of TPUs")},
      {"commands", leave("of TPUs")},
      {"megatron_lm_config.*", refuse("there is no tensor or pipeline parallelism here")},
      {"parallelism_config.*", refuse("there is no tensor, sequence or pipeline parallelism here")},
      {"tp_config.*", refuse("there is no tensor parallelism here")},
      {"ipex_config.*", leave("oneDNN computes on the CPU")},
      {"fsdp_config.sharding_strategy", together},
      {"fsdp_config.reshard_after_forward", together},
      {"fsdp_config.auto_wrap_policy", together},
      {"fsdp_config.transformer_layer_cls_to_wrap", together},
      {"fsdp_config.min_num_params", together},
      {"fsdp_config.offload_params", on_to("fsdp.offload", "all")},
  };
}

// Its DeepSpeed section: a file of DeepSpeed's own, or some of the keys in other words.
std::vector<Rule> deepspeed_rules() {
  const auto key = [](const char* name) { return std::string("deepspeed_config.") + name; };
  return {
      {key("deepspeed_config_file"),
       [](const Given& given, Adoption&) {
         given.refuse("the settings are there: fsdp adopt deepspeed " + given.text());
       }},
      {key("zero_stage"), take_zero_stage},
      {key("gradient_accumulation_steps"), count_to("train.micro_steps")},
      {key("gradient_clipping"), to("train.clip_norm")},
      {key("offload_optimizer_device"), take_offload},
      {key("offload_param_device"), take_offload},
      {key("offload_optimizer_nvme_path"), leave("see its device")},
      {key("offload_param_nvme_path"), leave("see its device")},
      {key("zero3_init_flag"), same("a rank makes or reads its own shard, always")},
      {key("zero3_save_16bit_model"), same("the saved model is whole; train.save_dtype: bf16")},
      {key("deepspeed_multinode_launcher"), leave(kLaunch)},
      {key("deepspeed_hostfile"), leave(kLaunch)},
      {key("deepspeed_exclusion_filter"), leave("mpirun --host or srun -x says which machines")},
      {key("deepspeed_inclusion_filter"), leave("mpirun --host or srun -w says which machines")},
      {key("deepspeed_moe_layer_cls_names"),
       refuse("there is no expert parallelism here: expected none")},
  };
}

// FSDP2's boolean, or FSDP1's strategy by name or number. accelerate tries a boolean first, and
// then refuses "1" under FSDP1: here it is the strategy.
void take_reshard(const Given& given, Adoption& adoption) {
  const Given* version = adoption.find("fsdp_config.fsdp_version");
  const bool number = given.one() == "1" && !(version && version->whole() == 2);
  if (given.says_truth() && !number)
    truth_to("fsdp.reshard_after_forward")(given, adoption);
  else
    set_strategy(adoption, given, given.one());
}

void take_sharding(Adoption& adoption) {
  const Given* strategy = adoption.find("fsdp_config.sharding_strategy");
  const Given* reshard = adoption.find("fsdp_config.reshard_after_forward");
  if (strategy) set_strategy(adoption, *strategy, strategy->one());
  if (reshard) take_reshard(*reshard, adoption);
  adoption.set_default("fsdp.strategy", "full_shard", "accelerate's default");
  const Given* policy = adoption.find("fsdp_config.auto_wrap_policy");
  Wrapping wrapping = Wrapping::kNone;
  const std::string name = policy ? lower(policy->one()) : "no_wrap";
  if (name == "transformer_based_wrap") {
    wrapping = Wrapping::kBlocks;
  } else if (name == "size_based_wrap") {
    wrapping = Wrapping::kSize;
  } else if (name != "no_wrap") {
    policy->fail("TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP");
  }
  set_wrap(adoption, wrapping, policy);
  adoption.set_default("fsdp.forward_prefetch", "false", "accelerate's default");
  adoption.set_default("fsdp.backward_prefetch", "none", "accelerate's default");
}

// What accelerate reads of the sections, under each way to distribute.
std::vector<Ignored> ignored_sections(const std::string& type) {
  std::vector<Ignored> ignored;
  if (type != "FSDP") ignored.push_back({"fsdp_config.", "no effect without FSDP"});
  if (type != "DEEPSPEED") ignored.push_back({"deepspeed_config.", "no effect without DEEPSPEED"});
  return ignored;
}

}  // namespace

const Program& accelerate_program() {
  static const Program program = [] {
    Program made =
        program_of("accelerate", "accelerate", {top_rules(), fsdp_rules(), deepspeed_rules()});
    made.name_of = fsdp_key_name;
    return made;
  }();
  return program;
}

std::string adopt_accelerate(const std::filesystem::path& file, const AdoptOptions& options) {
  std::vector<Given> given = read_tree(file);
  for (Given& each : given) each.name = fsdp_key_name(each.key);
  Adoption adoption("accelerate", file.string(), given, options);
  const Given* type = adoption.find("distributed_type");
  const std::string name = type ? type->one() : "";
  const Given* precision = adoption.find("mixed_precision");
  take_all(accelerate_program(), adoption, ignored_sections(name));
  FSDP_CHECK(type,
             "{}: distributed_type: expected FSDP, DEEPSPEED, MULTI_GPU, MULTI_CPU or NO, "
             "got none",
             file.string());
  const bool plain = name == "NO" || name.starts_with("MULTI_");
  if (!plain && name != "FSDP" && name != "DEEPSPEED") {
    type->fail("FSDP, DEEPSPEED, MULTI_GPU, MULTI_CPU or NO");
  }
  if (plain)
    adoption.set("fsdp.strategy", "no_shard", *type);
  else
    adoption.leave(*type, "every run is sharded as fsdp.strategy says");
  if (name == "FSDP") take_sharding(adoption);
  if (precision) set_precision(adoption, *precision, precision->one(), name == "FSDP");
  if (name == "DEEPSPEED") {
    adoption.set_default("fsdp.strategy", "shard_grad_op", "accelerate's default: stage 2");
    set_deepspeed_precision(adoption);
  }
  return adoption.yaml();
}

}  // namespace fsdp::adopt
