// The rules that lead from the options to what a unit does.
#include "comm/fsdp/options.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fnmatch.h>

#include "comm/fsdp/plan.h"
#include "core/flat_layout.h"

namespace fsdp::comm {

std::string_view choice_name(BackwardPrefetch prefetch) {
  constexpr std::array<std::string_view, 3> kNames = {"pre", "post", "none"};
  return kNames.at(static_cast<size_t>(prefetch));
}

std::string_view choice_name(Accumulation accumulation) {
  constexpr std::array<std::string_view, 3> kNames = {"reduce_each", "reduce_scatter_each",
                                                      "reduce_last"};
  return kNames.at(static_cast<size_t>(accumulation));
}

bool gives_gradients_back(const FsdpOptions& options) {
  return options.update_in_backward && options.micro_steps == 1;
}

bool is_hybrid(Strategy strategy) { return row_of(strategy).groups == ShardGroups::kSeveral; }

int shard_group_size(const FsdpOptions& options, int world) {
  if (row_of(options.strategy).groups == ShardGroups::kEachRank) return 1;
  if (!is_hybrid(options.strategy)) {
    FSDP_CHECK(options.shard_size == 0 || options.shard_size == world,
               "fsdp.shard_size: expected 0 unless the strategy is hybrid, got {}",
               options.shard_size);
    return world;
  }
  FSDP_CHECK(options.shard_size > 0,
             "fsdp.shard_size: a hybrid strategy needs the number of ranks of a shard group");
  FSDP_CHECK(world % options.shard_size == 0,
             "fsdp.shard_size: expected a divisor of {} ranks, got {}", world, options.shard_size);
  return options.shard_size;
}

GroupSizes group_sizes(const FsdpOptions& options, int world) {
  const int shards = shard_group_size(options, world);
  return {shards, world / shards};
}

namespace {

// Ranks that keep what forward gathered between them (hpZ); 0: none do.
int inner_group_size(const FsdpOptions& options, int shards) {
  const int size = options.reshard_group_size;
  if (size == 0 || shards == 1) return 0;  // one rank tries out what several will run
  FSDP_CHECK(
      size > 0 && shards % size == 0,
      "fsdp.reshard_group_size: expected a divisor of the ranks of a shard group, {}, got {}",
      shards, size);
  return size == shards ? 0 : size;
}

void check_fixed_order(const FsdpOptions& options) {
  if (!options.fixed_order) return;
  FSDP_CHECK(options.accumulation == Accumulation::kReduceEach,
             "fsdp.fixed_order: accumulation: {} adds micro-steps before ranks; expected "
             "reduce_each",
             choice_name(options.accumulation));
  FSDP_CHECK(!options.divide_factor && !options.force_sum && !options.split_division,
             "fsdp.fixed_order: {}: sums in fixed order are not divided; leave this key out",
             options.divide_factor ? "divide_factor"
             : options.force_sum   ? "force_sum"
                                   : "split_division");
}

}  // namespace

void check_options(const FsdpOptions& options, int world) {
  const int shards = shard_group_size(options, world);
  inner_group_size(options, shards);
  check_fixed_order(options);
  FSDP_CHECK(
      !options.force_sum || !options.split_division,
      "fsdp.split_division: it divides before and after the sum, fsdp.force_sum only after it; set "
      "one of the two");
  const DType wide = accumulation_dtype(options.param_dtype);
  FSDP_CHECK(!options.master_dtype || accumulation_dtype(*options.master_dtype) == wide,
             "[fsdp] master_dtype: expected {} or a dtype that accumulates in it, got {}",
             name_of(wide), name_of(*options.master_dtype));
  FSDP_CHECK(options.units_in_flight >= 1, "fsdp.units_in_flight: expected at least 1, got {}",
             options.units_in_flight);
  FSDP_CHECK(
      !options.update_in_backward || !options.detect_overflow,
      "fsdp.update_in_backward: loss scaling needs the gradients of all units before the first "
      "update; switch one of the two off");
  FSDP_CHECK(options.micro_steps >= 1, "[fsdp] micro_steps: expected at least 1, got {}",
             options.micro_steps);
}

namespace {

std::string text_of(const std::optional<bool>& choice) {
  return choice ? *choice ? "true" : "false" : "default";
}

template <typename T>
std::string text_of(const std::optional<T>& choice, std::string_view absent) {
  return choice ? fmt::format("{}", *choice) : std::string(absent);
}

std::string text_of(const std::optional<DType>& dtype) {
  return dtype ? std::string(name_of(*dtype)) : "default";
}

std::string text_of(const UnitOverride& unit) {
  return fmt::format(
      "unit {}: strategy {}, reshard_after_forward {}, reshard_group_size {}, param_dtype {}, "
      "reduce_dtype {}",
      unit.match, unit.strategy ? choice_name(*unit.strategy) : "default",
      text_of(unit.reshard_after_forward), text_of(unit.reshard_group_size, "default"),
      text_of(unit.param_dtype), text_of(unit.reduce_dtype));
}

}  // namespace

std::vector<std::string> texts_of(const FsdpOptions& options) {
  // Names every member: with a new option this does not compile until the option is added.
  const auto& [strategy, shard_size, reshard_after_forward, reshard_group_size, param_dtype,
               reduce_dtype, master_dtype, divide_factor, force_sum, split_division,
               forward_prefetch, backward_prefetch, units_in_flight, separate_reduce, release_arena,
               update_in_backward, accumulation, micro_steps, training, absent_is_zero,
               detect_overflow, fixed_order, rounding_seed, offload, host, file, units] = options;
  std::vector<std::string> texts = {
      fmt::format("strategy {}", choice_name(strategy)),
      fmt::format("shard_size {}", shard_size),
      fmt::format("reshard_after_forward {}", text_of(reshard_after_forward)),
      fmt::format("reshard_group_size {}", reshard_group_size),
      fmt::format("param_dtype {}", name_of(param_dtype)),
      fmt::format("reduce_dtype {}", name_of(reduce_dtype)),
      fmt::format("master_dtype {}", text_of(master_dtype)),
      fmt::format("divide_factor {}", text_of(divide_factor, "default")),
      fmt::format("force_sum {}", force_sum),
      fmt::format("split_division {}", split_division),
      fmt::format("forward_prefetch {}", forward_prefetch),
      fmt::format("backward_prefetch {}", choice_name(backward_prefetch)),
      fmt::format("units_in_flight {}", units_in_flight),
      fmt::format("separate_reduce {}", separate_reduce),
      fmt::format("release_arena {}", release_arena),
      fmt::format("update_in_backward {}", update_in_backward),
      fmt::format("accumulation {}", choice_name(accumulation)),
      fmt::format("micro_steps {}", micro_steps),
      fmt::format("training {}", training),
      fmt::format("absent_is_zero {}", absent_is_zero),
      fmt::format("detect_overflow {}", detect_overflow),
      fmt::format("fixed_order {}", fixed_order),
      fmt::format("rounding_seed {}", text_of(rounding_seed, "none")),
      fmt::format("offload {}", choice_name(offload)),
      fmt::format("host {}", host ? host->name() : "none"),
      fmt::format("file {}", file ? file->name() : "none"),
  };
  for (const UnitOverride& unit : units) texts.push_back(text_of(unit));
  return texts;
}

GradientDivision gradient_division(const FsdpOptions& options, GroupSizes groups) {
  if (options.fixed_order) return {};
  const double divisor = options.divide_factor.value_or(groups.shards * groups.replicas);
  FSDP_CHECK(divisor > 0, "[fsdp] divide factor: expected a positive number, got {}", divisor);
  const bool wide_range =
      options.reduce_dtype == DType::kF32 || options.reduce_dtype == DType::kBF16;
  if (wide_range && !options.split_division) {
    if (options.force_sum) return {.after = divisor};
    if (!options.divide_factor) return {.op = ReduceOp::kAverage, .replica_op = ReduceOp::kAverage};
    if (divisor == groups.shards) return {.op = ReduceOp::kAverage};
    return {.before = divisor};
  }
  double before = 1;
  while (std::fmod(divisor, before) == 0 && divisor / before > before) before *= 2;
  return {.before = before, .after = divisor / before};
}

// ---------------------------------------------------------------------------- Of one unit

namespace {

bool adds_up_whole(const FsdpOptions& o) {
  return o.micro_steps > 1 && o.accumulation == Accumulation::kReduceLast;
}

// The row of the strategy, and what the other options change in it.
Placements placements(const FsdpOptions& o, GroupSizes groups, bool awaits_backward) {
  using enum Placement;
  // A part is not the whole, nor is the host's memory the device's.
  const bool comes_and_goes = offloads_all(o.offload) && o.strategy != Strategy::kNoShard;
  const bool sharded = groups.shards > 1 || comes_and_goes;
  Placements at = row_of(sharded ? o.strategy : Strategy::kNoShard).at;

  if (sharded && o.reshard_after_forward) {
    at.parameters.turn = at.parameters.pause = *o.reshard_after_forward ? kFlatShard : kWhole;
  }
  if (awaits_backward) at.parameters.turn = kWhole;
  if (at.parameters.turn == kFlatShard && inner_group_size(o, groups.shards) > 0) {
    at.parameters.turn = kInnerShard;
  }

  if (!o.training) at.gradients = {.at_rest = kNowhere, .pause = kNowhere, .update = kNowhere};
  if (gives_gradients_back(o)) at.gradients.at_rest = at.gradients.pause = kNowhere;
  if (adds_up_whole(o)) {
    at.gradients.at_rest = kWhole;
    at.gradients.pause = kPartial;
  }
  const bool defers = o.fixed_order || o.accumulation == Accumulation::kReduceScatterEach;
  if (defers && groups.replicas > 1) at.gradients.pause_across = kPartial;
  return at;
}

}  // namespace

UnitPolicy unit_policy(const FsdpOptions& o, GroupSizes groups, bool awaits_backward) {
  UnitPolicy p = {.at = placements(o, groups, awaits_backward),
                  .param_dtype = o.param_dtype,
                  .master_dtype = o.master_dtype.value_or(accumulation_dtype(o.param_dtype)),
                  .sum_dtype = accumulation_dtype(o.param_dtype),
                  .reduce_dtype = o.reduce_dtype,
                  .sums_in_order = o.fixed_order,
                  .parts_of_shard = o.fixed_order ? groups.replicas : 1,
                  .division = gradient_division(o, groups),
                  .detects_overflow = o.detect_overflow,
                  .releases_memory = o.release_arena,
                  .alignment = o.fixed_order ? kNormBlock : kFlatAlignment};
  const bool inner = p.at.parameters.turn == Placement::kInnerShard;
  if (inner) p.inner_group = inner_group_size(o, groups.shards);
  const bool narrows = p.param_dtype == DType::kBF16 && p.master_dtype == p.sum_dtype;
  if (narrows) p.rounding_seed = o.rounding_seed;
  p.gradient_dtype = adds_up_whole(o) ? p.sum_dtype : p.reduce_dtype;
  // One buffer for both only where a step reduces once, and in the dtype of the result.
  p.averages_in_place = p.at.gradients.update == Placement::kWhole &&
                        p.reduce_dtype == p.sum_dtype && p.gradient_dtype == p.sum_dtype &&
                        (o.micro_steps == 1 || adds_up_whole(o));
  return p;
}

namespace {

bool matches(const UnitOverride& override, const PlannedUnit& unit) {
  const auto like = [&](const std::string& text) {
    return ::fnmatch(override.match.c_str(), text.c_str(), 0) == 0;
  };
  return like(unit.name) || std::any_of(unit.modules.begin(), unit.modules.end(),
                                        [&](const Module* m) { return like(m->class_name()); });
}

// How its errors begin.
std::string prefix(const UnitOverride& override) {
  return (override.place.empty() ? "" : override.place + ": ") + "fsdp.units: ";
}

[[noreturn]] void refuse_unmatched(const UnitOverride& override,
                                   const std::vector<PlannedUnit>& units) {
  std::vector<std::string> names;
  for (const PlannedUnit& unit : units) {
    if (unit.parameters.empty()) continue;
    std::vector<std::string> classes;
    for (const Module* module : unit.modules) classes.push_back(module->class_name());
    names.push_back(fmt::format("{} ({})", unit.name, fmt::join(classes, ", ")));
  }
  const bool split = std::any_of(units.begin(), units.end(),
                                 [](const PlannedUnit& unit) { return unit.part_of_root; });
  fail("{}no unit matches \"{}\"; the units are {}{}", prefix(override), override.match,
       fmt::join(names, ", "), split ? "; with fsdp.root: whole the root is one of them" : "");
}

void check_override(const UnitOverride& override, const FsdpOptions& all, int shards) {
  const Strategy strategy = override.strategy.value_or(all.strategy);
  FSDP_CHECK(row_of(strategy).groups == row_of(all.strategy).groups,
             "{}{}: strategy: expected one that shards over the same groups of ranks as "
             "fsdp.strategy does",
             prefix(override), override.match);
  FSDP_CHECK(all.strategy != Strategy::kNoShard ||
                 (!override.reshard_after_forward && !override.reshard_group_size),
             "{}{}: no_shard gives nothing back; expected no reshard_after_forward and "
             "no reshard_group_size",
             prefix(override), override.match);
  const int64_t group = override.reshard_group_size.value_or(0);
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
  if (given) option = static_cast<Option>(*given);
}

void apply(const UnitOverride& override, FsdpOptions& options) {
  take(override.strategy, options.strategy);
  take(override.reshard_after_forward, options.reshard_after_forward);
  take(override.reshard_group_size, options.reshard_group_size);
  take(override.param_dtype, options.param_dtype);
  take(override.reduce_dtype, options.reduce_dtype);
}

}  // namespace

std::vector<UnitPolicy> unit_policies(const FsdpOptions& options,
                                      const std::vector<PlannedUnit>& units, GroupSizes groups) {
  std::vector<FsdpOptions> own(units.size(), options);
  for (const UnitOverride& override : options.units) {
    check_override(override, options, groups.shards);
    bool found = false;
    for (size_t i = 0; i < units.size(); ++i) {
      if (!matches(override, units[i])) continue;
      found = found || !units[i].parameters.empty();
      apply(override, own[i]);
    }
    if (!found) refuse_unmatched(override, units);
  }
  std::vector<UnitPolicy> policies;
  for (size_t i = 0; i < units.size(); ++i) {
    policies.push_back(unit_policy(own[i], groups, units[i].awaits_backward));
  }
  return policies;
}

}  // namespace fsdp::comm
