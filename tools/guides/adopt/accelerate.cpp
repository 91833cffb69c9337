// accelerate's configuration file, which `accelerate config` writes: how ranks start, precision,
// sharding. Keys of its DeepSpeed section: deepspeed.cpp. Contract: tools/guides/adopt/programs.h.
#include <fmt/format.h>

#include "core/error.h"
#include "tools/guides/adopt/deepspeed.h"
#include "tools/guides/adopt/fsdp_keys.h"
#include "tools/guides/adopt/programs.h"
#include "tools/guides/adopt/read_tree.h"

namespace fsdp::adopt {

const Json& accelerate_json();  // tables/accelerate.json

namespace {

void take_machines(const Given& given, Adoption& adoption) {
  if (given.whole() < 1) given.fail("an integer from 1");
  const Given* processes = adoption.find("num_processes");
  if (processes && processes->whole() < given.whole()) {
    given.refuse("expected at most num_processes, " + processes->text());
  }
  adoption.leave(given, "mpirun --host or srun -N says which machines");
}

const std::string kMesh = "parallelism_config.";

// Without prefixes that say nothing.
std::string key_name(const std::string& key) {
  const std::string prefixed = kMesh + "parallelism_config_";
  return key.starts_with(prefixed) ? kMesh + key.substr(prefixed.size()) : fsdp_key_name(key);
}

// Its DeepSpeed section names a file of DeepSpeed's own, or has some of the keys in other words.
void take_deepspeed_file(const Given& given, Adoption&) {
  given.refuse("the settings are there: fsdp adopt deepspeed " + given.text());
}

// Ranks that share a model, and copies of such groups. Returns whether it says the strategy.
bool take_mesh(Adoption& adoption) {
  const Given* replicas = adoption.find(kMesh + "dp_replicate_size");
  const Given* shards = adoption.find(kMesh + "dp_shard_size");
  int64_t sizes[] = {1, 1};
  for (const Given* given : {replicas, shards}) {
    if (!given) continue;
    if (given->whole() < 1) given->fail("an integer from 1");
    sizes[given == shards] = given->whole();
    if (given->whole() == 1) adoption.off(*given);
  }
  const auto [copies, size] = sizes;
  if (copies * size == 1) return false;
  const Given& origin = copies > 1 ? *replicas : *shards;
  if (fsdp_version(adoption, 1) != 2) {
    origin.refuse("accelerate takes it with fsdp_version: 2 alone");
  }
  if (size == 1) {
    origin.refuse("expected dp_shard_size above 1 with it: copies alone are MULTI_GPU's");
  }
  adoption.set_ranks(copies * size, origin);
  adoption.set("fsdp.strategy", copies > 1 ? "hybrid_shard" : "full_shard", origin);
  if (copies > 1) adoption.set("fsdp.shard_size", std::to_string(size), *shards);
  return true;
}

void take_sharding(Adoption& adoption) {
  const Given* strategy = adoption.find("fsdp_config.sharding_strategy");
  const Given* reshard = adoption.find("fsdp_config.reshard_after_forward");
  const bool by_mesh = take_mesh(adoption);
  if (strategy && by_mesh)
    adoption.leave(*strategy, "parallelism_config says it");
  else if (strategy)
    set_strategy(adoption, *strategy, strategy->one());
  const int version = fsdp_version(adoption, 1);
  if (reshard) take_reshard(*reshard, adoption, version);
  adoption.set_default("fsdp.strategy", "full_shard", "accelerate's default");
  const Given* policy = adoption.find("fsdp_config.auto_wrap_policy");
  set_wrap(adoption, policy ? wrapping_of(*policy) : Wrapping::kNone, policy);
  set_prefetch_defaults(adoption, version, "accelerate's");
}

// What accelerate reads of the sections, under each way to distribute.
std::vector<Ignored> ignored_sections(const std::string& type) {
  std::vector<Ignored> ignored;
  if (type != "FSDP") {
    for (const char* section : {"fsdp_config.", "parallelism_config.dp_"}) {
      ignored.push_back({section, "no effect without FSDP"});
    }
  }
  if (type != "DEEPSPEED") ignored.push_back({"deepspeed_config.", "no effect without DEEPSPEED"});
  return ignored;
}

}  // namespace

const Program& accelerate_program() {
  static const Program program = [] {
    Program made =
        program_of("accelerate", "accelerate",
                   {rules_of(accelerate_json()["rules"], {{"machines", take_machines},
                                                          {"file", take_deepspeed_file},
                                                          {"offload", take_offload},
                                                          {"zero_stage", take_zero_stage}}),
                    fsdp_rules()});
    made.name_of = key_name;
    return made;
  }();
  return program;
}

std::string adopt_accelerate(const std::filesystem::path& file, const AdoptOptions& options) {
  std::vector<Given> given = read_tree(file);
  for (Given& each : given) each.name = key_name(each.name);
  Adoption adoption("accelerate", file.string(), given, options);
  const Given* type = adoption.find("distributed_type");
  const std::string name = type ? type->one() : "";
  const Given* precision = adoption.find("mixed_precision");
  std::vector<Ignored> ignored = ignored_sections(name);
  if (name == "FSDP" && fsdp_version(adoption, 1) == 2) {
    for (const Ignored& each : without_second_fsdp()) ignored.push_back(each);
  }
  take_all(accelerate_program(), adoption, ignored);
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
