// Matching of overrides, and what they may say.
#include "comm/fsdp/unit_options.h"

#include <fnmatch.h>

namespace fsdp::comm {
namespace {

bool matches(const UnitOverride& override, const PlannedUnit& unit) {
  const auto like = [&](const std::string& text) {
    return ::fnmatch(override.match.c_str(), text.c_str(), 0) == 0;
  };
  return like(unit.name) || like(unit.module->class_name());
}

// How its errors begin.
std::string prefix(const UnitOverride& override) {
  return (override.place.empty() ? "" : override.place + ": ") + "fsdp.units: ";
}

[[noreturn]] void refuse_unmatched(const UnitOverride& override,
                                   const std::vector<PlannedUnit>& units) {
  std::vector<std::string> names;
  for (const PlannedUnit& unit : units) {
    names.push_back(fmt::format("{} ({})", unit.name, unit.module->class_name()));
  }
  fail("{}no unit matches \"{}\"; there are {}", prefix(override), override.match,
       fmt::join(names, ", "));
}

void check_override(const UnitOverride& override, const FsdpOptions& all, int shards) {
  const Strategy strategy = override.strategy.value_or(all.strategy);
  FSDP_CHECK(is_hybrid(strategy) == is_hybrid(all.strategy) &&
                 (strategy == Strategy::kNoShard) == (all.strategy == Strategy::kNoShard),
             "{}{}: strategy: expected one that shards over the same groups of ranks as "
             "fsdp.strategy does",
             prefix(override), override.match);
  FSDP_CHECK(all.strategy != Strategy::kNoShard ||
                 (!override.reshard_after_forward && !override.reshard_group_size),
             "{}{}: no_shard gives nothing back; expected no reshard_after_forward and "
             "no reshard_group_size",
             prefix(override), override.match);
  const int group = override.reshard_group_size.value_or(0);
  FSDP_CHECK(
      group == 0 || shards == 1 || (group > 0 && shards % group == 0),
      "{}{}: reshard_group_size: expected a divisor of the ranks of a shard group, {}, got {}",
      prefix(override), override.match, shards, group);
  const DType wide = accumulation_dtype(all.param_dtype);
  for (const auto& [key, dtype] : {std::pair{"param_dtype", override.param_dtype},
                                   std::pair{"reduce_dtype", override.reduce_dtype}}) {
    FSDP_CHECK(!dtype || accumulation_dtype(*dtype) == wide,
               "{}{}: {}: expected a dtype that accumulates in {} as the others do, got "
               "{}",
               prefix(override), override.match, key, name_of(wide), name_of(*dtype));
  }
}

template <typename T, typename Option>
void take(const std::optional<T>& given, Option& option) {
  if (given) option = *given;
}

void apply(const UnitOverride& override, FsdpOptions& options) {
  take(override.strategy, options.strategy);
  take(override.reshard_after_forward, options.reshard_after_forward);
  take(override.reshard_group_size, options.reshard_group_size);
  take(override.param_dtype, options.param_dtype);
  take(override.reduce_dtype, options.reduce_dtype);
}

}  // namespace

std::vector<FsdpOptions> unit_options(const FsdpOptions& options,
                                      const std::vector<PlannedUnit>& units, int shards) {
  FsdpOptions common = options;
  common.units.clear();
  std::vector<FsdpOptions> out(units.size(), common);
  for (const UnitOverride& override : options.units) {
    check_override(override, options, shards);
    bool found = false;
    for (size_t i = 0; i < units.size(); ++i) {
      if (!matches(override, units[i])) continue;
      found = true;
      apply(override, out[i]);
    }
    if (!found) refuse_unmatched(override, units);
  }
  return out;
}

}  // namespace fsdp::comm
