// The formulas of the header, allocation by allocation.
#include "tools/runtime/memory_formula.h"

#include <algorithm>
#include <map>

namespace fsdp::tools {
namespace {

size_t elements(int64_t numel, size_t bytes) {
  return rounded_bytes(static_cast<size_t>(numel) * bytes);
}

// What the formulas of a unit are written with; bytes of an element.
struct Terms {
  Terms(const MemoryPlan& plan, const UnitExtent& unit)
      : options(unit.options),
        master(size_of(accumulation_dtype(options.param_dtype))),
        parameter(size_of(options.param_dtype)),
        reduced(size_of(options.reduce_dtype)),
        accumulated(comm::reduces_last(options) ? master : reduced),
        parameters_kept(comm::keeps_parameters(options, plan.shards)),
        gradients_kept(comm::keeps_gradients(options, plan.shards)),
        inner(unit.depth > 0 ? comm::inner_group_size(options, plan.shards) : 0) {}

  const comm::FsdpOptions& options;
  size_t master, parameter, reduced, accumulated;
  bool parameters_kept, gradients_kept;
  int inner;  // ranks that keep the parameters after forward; 0: none
};

// Buffers in rotation for the units of every depth that need them; the root is alone at its.
// `bytes_of`: what a unit needs.
template <typename F>
size_t arena(const MemoryPlan& plan, int64_t buffers, F&& bytes_of) {
  struct Level {
    size_t units = 0, largest = 0;
  };
  std::map<int, Level> levels;
  for (const UnitExtent& unit : plan.units) {
    const size_t bytes = bytes_of(unit, Terms(plan, unit));
    Level& level = levels[unit.depth];
    level.units += bytes > 0;
    level.largest = std::max(level.largest, bytes);
  }
  size_t total = 0;
  for (const auto& [depth, level] : levels) {
    total += std::min(level.units, static_cast<size_t>(buffers)) * rounded_bytes(level.largest);
  }
  return total;
}

struct ParameterBytes {
  size_t shards = 0, unsharded = 0;
};

ParameterBytes parameters(const MemoryPlan& plan) {
  ParameterBytes bytes;
  for (const UnitExtent& unit : plan.units) {
    const Terms t(plan, unit);
    for (const SegmentExtent& s : unit.segments) {
      const int64_t numel = s.shard_numel * plan.shards;
      const size_t master = s.trainable ? t.master : t.parameter;
      const bool one_holds_the_other = t.parameters_kept && master == t.parameter;
      if (!one_holds_the_other) bytes.shards += elements(s.shard_numel, master);
      if (t.parameters_kept) {
        (one_holds_the_other && plan.shards == 1 ? bytes.shards : bytes.unsharded) +=
            elements(numel, t.parameter);
      }
      if (t.inner > 0) bytes.unsharded += elements(numel / t.inner, t.parameter);
    }
  }
  bytes.unsharded += arena(plan, plan.options.units_in_flight,
                           [&](const UnitExtent& unit, const Terms& t) -> size_t {
                             size_t sum = 0;
                             for (const SegmentExtent& s : unit.segments) {
                               sum += elements(s.shard_numel * plan.shards, t.parameter);
                             }
                             return t.parameters_kept ? 0 : sum;
                           });
  return bytes;
}

size_t gradients(const MemoryPlan& plan) {
  size_t bytes = 0;
  for (const UnitExtent& unit : plan.units) {
    const Terms t(plan, unit);
    const bool one_buffer = plan.shards == 1 && t.reduced == t.master &&
                            (t.options.micro_steps == 1 || comm::reduces_last(t.options));
    for (const SegmentExtent& s : unit.segments) {
      if (!s.trainable) continue;
      if (t.gradients_kept) bytes += elements(s.shard_numel * plan.shards, t.accumulated);
      if (!one_buffer) bytes += elements(s.shard_numel, t.master);
    }
  }
  const Terms head(plan, plan.units[plan.head_unit]);
  if (head.accumulated < head.master) bytes += elements(plan.head_numel, head.master);
  bytes += arena(plan, comm::kGradientBuffers, [&](const UnitExtent& unit, const Terms& t) {
    size_t sum = 0;
    if (t.gradients_kept && t.accumulated == t.reduced) return sum;
    for (const SegmentExtent& s : unit.segments) {
      if (s.trainable) sum += elements(s.shard_numel * plan.shards, t.reduced);
    }
    return sum;
  });
  return bytes;
}

size_t optimizer_state(const MemoryPlan& plan) {
  size_t bytes = 0;
  int64_t flags = 1;  // overflow
  for (const UnitExtent& unit : plan.units) {
    const Terms t(plan, unit);
    for (const SegmentExtent& s : unit.segments) {
      if (!s.trainable) continue;
      bytes += 2 * elements(s.shard_numel, t.master);    // both moments
      bytes += elements(s.parameters, sizeof(int32_t));  // step counters
      flags += s.parameters;
    }
  }
  const size_t flag_bytes = elements(flags, sizeof(int32_t));
  if (!plan.training) return flag_bytes;
  size_t scalars = 5;  // learning rate; norm, its power sum, coefficient, skip
  if (plan.options.detect_overflow) scalars += 3;  // loss scale, its counters, its end
  return bytes + flag_bytes + scalars * rounded_bytes(sizeof(double)) +
         elements(plan.norm_blocks, sizeof(double));
}

bool trains_one_of(const comm::Unit& unit, int64_t numel) {
  const comm::ParameterSegment* segment = unit.parameters.trainable();
  if (!segment) return false;
  const auto& parameters = segment->layout.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [&](const FlatParameter& p) { return p.numel == numel; });
}

}  // namespace

MemoryPlan memory_plan(const comm::FullySharded& sharded, const models::ModelConfig& model,
                       bool training) {
  MemoryPlan plan = {
      .shards = sharded.mesh().shards(), .options = sharded.options(), .training = training};
  for (const auto& unit : sharded.units()) {
    if (unit->parameters.segments().empty()) continue;
    UnitExtent& extent = plan.units.emplace_back();
    extent.depth = unit->depth;
    extent.options = unit->options;
    if (trains_one_of(*unit, model.vocabulary * model.hidden)) {
      plan.head_numel = model.vocabulary * model.hidden;
      plan.head_unit = plan.units.size() - 1;  // an embedding of that size comes before it
    }
    for (const comm::ParameterSegment& segment : unit->parameters.segments()) {
      const FlatLayout& layout = segment.layout;
      extent.segments.push_back({layout.shard_numel(),
                                 static_cast<int64_t>(layout.parameters().size()),
                                 segment.trainable});
      if (segment.trainable && plan.options.fixed_order) plan.norm_blocks += layout.blocks();
    }
  }
  return plan;
}

std::array<size_t, kMemoryCategories> predicted_memory(const MemoryPlan& plan) {
  const ParameterBytes bytes = parameters(plan);
  std::array<size_t, kMemoryCategories> predicted{};
  using enum MemoryCategory;
  predicted[static_cast<size_t>(kParameterShard)] = bytes.shards;
  predicted[static_cast<size_t>(kUnshardedParameter)] = bytes.unsharded;
  predicted[static_cast<size_t>(kGradient)] = gradients(plan);
  predicted[static_cast<size_t>(kOptimizerState)] = optimizer_state(plan);
  return predicted;
}

bool has_formula(MemoryCategory category) {
  using enum MemoryCategory;
  return category == kParameterShard || category == kUnshardedParameter || category == kGradient ||
         category == kOptimizerState;
}

}  // namespace fsdp::tools
