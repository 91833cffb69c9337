// The formulas of the header, allocation by allocation.
#include "tests/support/memory_formula.h"

#include <algorithm>
#include <map>

#include "core/ops/cross_entropy.h"

namespace fsdp::tools {
namespace {

size_t elements(int64_t numel, size_t bytes) {
  return rounded_bytes(static_cast<size_t>(numel) * bytes);
}

// What the formulas of a unit are written with; bytes of an element.
struct Terms {
  explicit Terms(const UnitExtent& unit)
      : policy(unit.policy),
        master(size_of(policy.master_dtype)),
        parameter(size_of(policy.param_dtype)),
        reduced(size_of(policy.reduce_dtype)),
        accumulated(size_of(policy.gradient_dtype)) {}

  const comm::UnitPolicy& policy;
  size_t master, parameter, reduced, accumulated;
};

// What a unit needs of an arena; `stays`: until the end of backward.
struct Need {
  size_t bytes = 0;
  bool stays = false;
};

// Buffers for the units of every depth that need them, `rotating` ones and one more for each unit
// whose contents stay; the root is alone at its. `need_of`: of a unit.
template <typename F>
size_t arena(const MemoryPlan& plan, int64_t rotating, F&& need_of) {
  struct Level {
    size_t units = 0, staying = 0, largest = 0;
  };
  std::map<int, Level> levels;
  for (const UnitExtent& unit : plan.units) {
    const Need need = need_of(unit, Terms(unit));
    Level& level = levels[unit.depth];
    level.units += need.bytes > 0;
    level.staying += need.stays;
    level.largest = std::max(level.largest, need.bytes);
  }
  size_t total = 0;
  for (const auto& [depth, level] : levels) {
    total += std::min(level.units, static_cast<size_t>(rotating) + level.staying) *
             rounded_bytes(level.largest);
  }
  return total;
}

struct ParameterBytes {
  size_t shards = 0, unsharded = 0;
};

ParameterBytes parameters(const MemoryPlan& plan) {
  ParameterBytes bytes;
  for (const UnitExtent& unit : plan.units) {
    const Terms t(unit);
    for (const SegmentExtent& s : unit.segments) {
      const int64_t numel = s.shard_numel * plan.shards;
      const size_t master = s.trainable ? t.master : t.parameter;
      const bool one_holds_the_other = t.policy.resident && master == t.parameter;
      if (!one_holds_the_other) bytes.shards += elements(s.shard_numel, master);
      if (t.policy.resident) {
        (one_holds_the_other && plan.shards == 1 ? bytes.shards : bytes.unsharded) +=
            elements(numel, t.parameter);
      }
      const int inner = t.policy.inner_group;
      if (inner > 0) bytes.unsharded += elements(numel / inner, t.parameter);
    }
  }
  bytes.unsharded +=
      arena(plan, plan.options.units_in_flight, [&](const UnitExtent& unit, const Terms& t) {
        Need need;
        if (t.policy.resident) return need;
        for (const SegmentExtent& s : unit.segments) {
          need.bytes += elements(s.shard_numel * plan.shards, t.parameter);
        }
        need.stays = t.policy.keeps_parameters;
        return need;
      });
  return bytes;
}

size_t gradients(const MemoryPlan& plan) {
  size_t bytes = 0;
  for (const UnitExtent& unit : plan.units) {
    const Terms t(unit);
    for (const SegmentExtent& s : unit.segments) {
      if (!s.trainable) continue;
      if (t.policy.keeps_gradients) bytes += elements(s.shard_numel * plan.shards, t.accumulated);
      if (!t.policy.averages_in_place) bytes += elements(s.shard_numel, t.master);
    }
  }
  bytes += plan.wide.peak();
  bytes += arena(plan, comm::kGradientBuffers, [&](const UnitExtent& unit, const Terms& t) {
    Need need;
    if (t.policy.keeps_gradients && t.accumulated == t.reduced) return need;
    for (const SegmentExtent& s : unit.segments) {
      if (s.trainable) need.bytes += elements(s.shard_numel * plan.shards, t.reduced);
    }
    return need;
  });
  return bytes;
}

size_t optimizer_state(const MemoryPlan& plan) {
  const size_t states = plan.optimizer ? optim::state_names(*plan.optimizer).size() : 0;
  size_t bytes = 0;
  int64_t flags = 1;  // overflow
  for (const UnitExtent& unit : plan.units) {
    const Terms t(unit);
    for (const SegmentExtent& s : unit.segments) {
      if (!s.trainable) continue;
      bytes += states * elements(s.shard_numel, t.master);
      bytes += elements(s.parameters, sizeof(int32_t));  // step counters
      flags += s.parameters;
    }
  }
  const size_t flag_bytes = elements(flags, sizeof(int32_t));
  if (!plan.optimizer) return flag_bytes;
  size_t scalars = 5;  // learning rate; norm, its power sum, coefficient, skip
  if (plan.options.detect_overflow) scalars += 3;  // loss scale, its counters, its end
  return bytes + flag_bytes + scalars * rounded_bytes(sizeof(double)) +
         elements(plan.norm_blocks, sizeof(double));
}

std::string module_of(const Parameter& parameter) {
  return parameter.name().substr(0, parameter.name().rfind('.'));
}

}  // namespace

size_t WideGradients::peak() const {
  return std::max({head + head_bias, positions, head_stays ? head + other : other});
}

// Kernels write in the dtype of their operands or in the accumulation dtype. A norm makes the
// gradients of its weight and its bias at once, every other op one after the other.
void add_wide_gradients(const std::vector<const Parameter*>& trained,
                        const comm::UnitPolicy& policy, const models::ModelConfig& model,
                        int64_t positions, WideGradients& wide) {
  const DType wide_dtype = policy.sum_dtype;
  if (policy.gradient_dtype == wide_dtype) return;
  const bool direct = policy.gradient_dtype == policy.param_dtype;
  const bool in_pieces = positions > ops::head_chunk_rows(positions, model.vocabulary);
  std::map<std::string, size_t> vectors;  // of a module
  for (const Parameter* p : trained) {
    const size_t bytes = elements(p->numel(), size_of(wide_dtype));
    if (p->name() == (model.tied_head ? "embedding.tokens.weight" : "head.weight")) {
      wide.head = !direct || model.tied_head || in_pieces ? bytes : 0;
      wide.head_stays = model.tied_head;
    } else if (!direct && p->name() == "embedding.positions.weight") {
      wide.positions = bytes;
    } else if (p->name() == "head.bias") {
      wide.head_bias = !direct || in_pieces ? bytes : 0;
    } else if (!direct && p->shape().rank() == 1) {
      vectors[module_of(*p)] += bytes;
    } else if (!direct) {
      wide.other = std::max(wide.other, bytes);
    }
  }
  for (const auto& [module, bytes] : vectors) wide.other = std::max(wide.other, bytes);
}

MemoryPlan memory_plan(const comm::FullySharded& sharded, const models::ModelConfig& model,
                       const std::optional<optim::OptimizerOptions>& optimizer, int64_t positions) {
  MemoryPlan plan = {
      .shards = sharded.mesh().shards(), .options = sharded.options(), .optimizer = optimizer};
  for (const auto& unit : sharded.units()) {
    if (unit->parameters.segments().empty()) continue;
    UnitExtent& extent = plan.units.emplace_back();
    extent.depth = unit->depth;
    extent.policy = unit->policy;
    std::vector<const Parameter*> trained;
    for (const comm::ParameterSegment& segment : unit->parameters.segments()) {
      const FlatLayout& layout = segment.layout;
      extent.segments.push_back({layout.shard_numel(),
                                 static_cast<int64_t>(layout.parameters().size()),
                                 segment.trainable});
      if (!segment.trainable) continue;
      if (plan.options.fixed_order) plan.norm_blocks += layout.blocks();
      for (const FlatParameter& p : layout.parameters()) trained.push_back(p.parameter);
    }
    add_wide_gradients(trained, unit->policy, model, positions, plan.wide);
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

std::array<bool, kMemoryCategories> upper_bounds(const MemoryPlan& plan) {
  std::array<bool, kMemoryCategories> bounds{};
  bounds[static_cast<size_t>(MemoryCategory::kGradient)] =
      plan.options.release_arena && plan.wide.peak() > 0;
  return bounds;
}

}  // namespace fsdp::tools
