// Contract: tools/guides/adopt/fsdp_keys.h.
#include "tools/guides/adopt/fsdp_keys.h"

#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"

namespace fsdp::adopt {

const Json& fsdp_json();  // tables/fsdp.json

namespace {

const std::string kSection = "fsdp_config.";

// In the order of accelerate's numbers, from 1.
constexpr std::array<std::string_view, 5> kStrategies = {"full_shard", "shard_grad_op", "no_shard",
                                                         "hybrid_shard", "hybrid_shard_zero2"};
constexpr std::array<std::string_view, 3> kPrefetches = {"backward_pre", "backward_post",
                                                         "no_prefetch"};

// One of the names, or its number from 1.
template <size_t N>
std::string choice(const std::array<std::string_view, N>& names, const Given& given,
                   const std::string& text) {
  for (size_t i = 0; i < N; ++i) {
    if (lower(text) == names[i] || text == std::to_string(i + 1)) return std::string(names[i]);
  }
  given.fail(fmt::format("{} or a number from 1 to {}", fmt::join(names, ", "), N));
}

void take_prefetch(const Given& given, Adoption& adoption) {
  adoption.set("fsdp.backward_prefetch", choice(kPrefetches, given, given.one()), given);
}

void take_limit(const Given& given, Adoption& adoption) {
  if (given.truth())
    adoption.set("fsdp.units_in_flight", "2", given);
  else
    adoption.leave(given, "gathered memory is always limited, by fsdp.units_in_flight");
}

// Of two keys: recompute, and whether what it keeps waits on the host.
void take_checkpointing(const Given& given, Adoption& adoption) {
  const bool offloads = adoption.is_on(kSection + "activation_checkpointing_offload");
  if (!given.truth()) return adoption.off(given);
  if (!adoption.is_on(kSection + "activation_checkpointing")) {
    return adoption.leave(given, "without activation_checkpointing it has no effect");
  }
  adoption.set("train.recompute.mode", offloads ? "offload" : "full", given);
}

void take_orig_params(const Given& given, Adoption& adoption) {
  given.truth();
  adoption.leave(given,
                 "always so: a flat unit knows its parameters, their names and their weight decay");
}

void take_ram_efficient(const Given& given, Adoption& adoption) {
  const Given* sync = adoption.find(kSection + "sync_module_states");
  if (given.truth() && sync && !sync->truth() && fsdp_version(adoption, 1) == 1) {
    given.refuse("expected sync_module_states to be true: only rank 0 would have weights");
  }
  on_to("fsdp.sync_module_states", "true")(given, adoption);
}

}  // namespace

std::string fsdp_key_name(const std::string& key) {
  const std::string prefixed = kSection + "fsdp_";
  return key.starts_with(prefixed) ? kSection + key.substr(prefixed.size()) : key;
}

std::vector<Rule> fsdp_rules() {
  return rules_of(fsdp_json(), {{"prefetch", take_prefetch},
                                {"limit", take_limit},
                                {"checkpointing", take_checkpointing},
                                {"ram_efficient", take_ram_efficient},
                                {"orig_params", take_orig_params}});
}

int fsdp_version(const Adoption& adoption, int otherwise) {
  const Given* version = adoption.find(kSection + "version");
  if (!version) return otherwise;
  if (version->whole() != 1 && version->whole() != 2) version->fail("1 or 2");
  return static_cast<int>(version->whole());
}

std::vector<Ignored> without_second_fsdp() {
  std::vector<Ignored> ignored;
  for (const char* key :
       {"backward_prefetch", "forward_prefetch", "use_orig_params", "sync_module_states"}) {
    ignored.push_back({kSection + key, "FSDP2 does not read it"});
  }
  return ignored;
}

void set_prefetch_defaults(Adoption& adoption, int version, const std::string& whose) {
  const bool ahead = version == 2;
  const std::string origin = ahead ? "FSDP2 always gathers ahead" : whose + " default";
  adoption.set_default("fsdp.forward_prefetch", ahead ? "true" : "false", origin);
  adoption.set_default("fsdp.backward_prefetch", ahead ? "pre" : "none", origin);
}

// accelerate tries a boolean first, and then refuses "1" under FSDP1: here it is the strategy.
void take_reshard(const Given& given, Adoption& adoption, int version) {
  const bool number = given.one() == "1" && version == 1;
  if (given.says_truth() && !number)
    truth_to("fsdp.reshard_after_forward")(given, adoption);
  else
    set_strategy(adoption, given, given.one());
}

void set_strategy(Adoption& adoption, const Given& origin, const std::string& name) {
  const std::string strategy = choice(kStrategies, origin, name);
  adoption.set("fsdp.strategy", strategy, origin);
  if (!strategy.starts_with("hybrid")) return;
  int64_t size = adoption.options().ranks_per_node;
  const Given* machines = adoption.find("num_machines");
  if (size == 0 && machines && adoption.ranks() > 0 && machines->whole() > 0) {
    size = adoption.ranks() / machines->whole();
  }
  if (size == 0) {
    origin.refuse(
        "it shards inside a node, and the file does not say how many ranks a node has: "
        "give --ranks-per-node");
  }
  adoption.set("fsdp.shard_size", std::to_string(size), origin, "the ranks of a node");
}

void set_precision(Adoption& adoption, const Given& origin, const std::string& name, bool sharded) {
  if (name == "fp8") origin.refuse("there is no 8-bit compute here: expected no, fp16 or bf16");
  if (name != "no" && name != "fp16" && name != "bf16") origin.fail("no, fp16 or bf16");
  adoption.set("train.dtype", name == "no" ? "f32" : name, origin);
  const bool declared = adoption.find(kSection + "mixed_precision.reduce_dtype") != nullptr;
  if (name != "no" && sharded && (!declared || adoption.options().literal)) {
    adoption.set("train.reduce_dtype", name, origin,
                 "accelerate gives parameters, gradient sums and buffers one dtype; f32 is safer");
  }
}

Wrapping wrapping_of(const Given& policy) {
  const std::string name = lower(policy.one());
  if (name == "transformer_based_wrap") return Wrapping::kBlocks;
  if (name == "size_based_wrap") return Wrapping::kSize;
  if (name != "no_wrap") policy.fail("TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP");
  return Wrapping::kNone;
}

void set_wrap(Adoption& adoption, Wrapping wrapping, const Given* origin) {
  const Given* classes = adoption.find(kSection + "transformer_layer_cls_to_wrap");
  const Given* size = adoption.find(kSection + "min_num_params");
  if (classes && classes->values.empty()) adoption.off(*std::exchange(classes, nullptr));
  if (size && size->whole() == 0) adoption.off(*std::exchange(size, nullptr));
  std::string unused = "no effect with this wrap policy";
  if (wrapping == Wrapping::kNone && !origin) {
    unused = "nothing there turns wrapping on: the whole model was one unit";
    const Given* meant = adoption.options().literal ? nullptr : size ? size : classes;
    if (meant) {
      wrapping = size ? Wrapping::kSize : Wrapping::kBlocks;
      adoption.set("fsdp.wrap", size ? "size" : "transformer_block", *meant,
                   unused + " (fsdp.wrap: none, or --literal)");
    }
  }
  if (classes && wrapping != Wrapping::kBlocks) adoption.leave(*classes, unused);
  if (size && wrapping != Wrapping::kSize) adoption.leave(*size, unused);
  const char* const name = wrapping == Wrapping::kNone     ? "none"
                           : wrapping == Wrapping::kBlocks ? "transformer_block"
                                                           : "size";
  if (origin)
    adoption.set("fsdp.wrap", name, *origin);
  else
    adoption.set_default("fsdp.wrap", name, "no wrapping is said: the default there");
  if (classes && wrapping == Wrapping::kBlocks) {
    if (classes->words(',').empty()) classes->fail("names of classes");
    adoption.set_list("fsdp.wrap_classes", classes->words(','), *classes);
  }
  if (size && wrapping == Wrapping::kSize) whole_to("fsdp.min_num_params")(*size, adoption);
  if (wrapping == Wrapping::kBlocks) {
    adoption.set_default("fsdp.root", "whole", "what no layer holds is one unit there");
  }
}

}  // namespace fsdp::adopt
