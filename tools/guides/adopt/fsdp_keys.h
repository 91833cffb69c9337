// What accelerate and transformers say of FSDP in the same words: the keys of fsdp_config, without
// the prefix fsdp_ that both allow.
#pragma once

#include <string>
#include <vector>

#include "tools/guides/adopt/rules.h"

namespace fsdp::adopt {

// "fsdp_config.fsdp_min_num_params" -> "fsdp_config.min_num_params"
std::string fsdp_key_name(const std::string& key);
// Keys that mean the same in both. The other ones are read together, by the functions below.
std::vector<Rule> fsdp_rules();

// 1 or 2: whose FSDP, PyTorch's first one or fully_shard. `otherwise`: where nothing says it.
int fsdp_version(const Adoption& adoption, int otherwise);
// What fully_shard does not read of the keys that the first FSDP has.
std::vector<Ignored> without_second_fsdp();
// Of a version: whether it gathers ahead where no key says it. `whose` default it is.
void set_prefetch_defaults(Adoption& adoption, int version, const std::string& whose);
// A boolean, as fully_shard has it, or the strategy by name or number.
void take_reshard(const Given& given, Adoption& adoption, int version);

// A name of a strategy or accelerate's number for one; hybrid ones also need the ranks of a node.
void set_strategy(Adoption& adoption, const Given& origin, const std::string& name);
// "no", fp16 or bf16. Under FSDP the sums over ranks have the same dtype.
void set_precision(Adoption& adoption, const Given& origin, const std::string& name, bool sharded);

enum class Wrapping { kBlocks, kSize, kNone };
Wrapping wrapping_of(const Given& policy);
// Units by what the file says: `origin` says the policy, or is null where nothing does. Classes or
// a size that nothing turns on mean what they say, unless the literal configuration is asked for.
void set_wrap(Adoption& adoption, Wrapping wrapping, const Given* origin);

}  // namespace fsdp::adopt
