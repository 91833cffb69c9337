// The formulas of the header, allocation by allocation.
#include "tools/runtime/memory_formula.h"

#include <algorithm>

namespace fsdp::tools {
namespace {

constexpr int64_t kGradientBuffers = 2;  // one is written, one is being reduced

size_t elements(int64_t numel, size_t bytes) {
  return rounded_bytes(static_cast<size_t>(numel) * bytes);
}

// The root's buffer and the blocks' in rotation.
size_t arena(const MemoryPlan& plan, int64_t buffers, size_t bytes) {
  int64_t largest = 0;
  for (size_t i = 1; i < plan.units.size(); ++i) {
    largest = std::max(largest, plan.units[i].shard_numel * plan.units[i].shards);
  }
  const UnitExtent& root = plan.units[0];
  return elements(root.shard_numel * root.shards, bytes) +
         std::min(plan.units.size() - 1, static_cast<size_t>(buffers)) * elements(largest, bytes);
}

size_t optimizer_state(const MemoryPlan& plan) {
  size_t bytes = 0;
  int64_t flags = 0;
  for (const UnitExtent& unit : plan.units) {
    bytes += 2 * elements(unit.shard_numel, plan.master_bytes);  // both moments
    bytes += elements(unit.parameters, sizeof(int32_t));         // step counters
    flags += unit.parameters;
  }
  constexpr size_t kScalars = 5;  // learning rate; norm, its power sum, coefficient, skip
  return plan.training
             ? bytes + elements(flags, sizeof(int32_t)) + kScalars * rounded_bytes(sizeof(double))
             : elements(flags, sizeof(int32_t));
}

}  // namespace

MemoryPlan memory_plan(const comm::FullySharded& sharded, const models::ModelConfig& model,
                       bool training) {
  const comm::FsdpOptions& options = sharded.options();
  MemoryPlan plan = {.units = {},
                     .resident = sharded.units()[0]->parameters.resident(),
                     .units_in_flight = options.units_in_flight,
                     .master_bytes = size_of(accumulation_dtype(options.param_dtype)),
                     .parameter_bytes = size_of(options.param_dtype),
                     .gradient_bytes = size_of(options.reduce_dtype),
                     .head_numel = model.vocabulary * model.hidden,
                     .training = training};
  for (const auto& unit : sharded.units()) {
    const FlatLayout& layout = unit->parameters.segments().at(0).layout;
    plan.units.push_back(
        {layout.shard_numel(), layout.shards(), static_cast<int64_t>(layout.parameters().size())});
  }
  return plan;
}

std::array<size_t, kMemoryCategories> predicted_memory(const MemoryPlan& plan) {
  size_t shards = 0, copies = 0, gradients = 0;
  for (const UnitExtent& unit : plan.units) {
    shards += elements(unit.shard_numel, plan.master_bytes);
    copies += elements(unit.shard_numel, plan.parameter_bytes);
    gradients += elements(unit.shard_numel, plan.gradient_bytes);
  }
  if (!plan.resident) {
    copies = arena(plan, plan.units_in_flight, plan.parameter_bytes);
    gradients = shards + arena(plan, kGradientBuffers, plan.gradient_bytes);
  } else {
    if (plan.parameter_bytes == plan.master_bytes) copies = 0;
    if (plan.gradient_bytes != plan.master_bytes) gradients += shards;
  }
  if (plan.gradient_bytes < plan.master_bytes) {
    gradients += elements(plan.head_numel, plan.master_bytes);
  }
  std::array<size_t, kMemoryCategories> predicted{};
  using enum MemoryCategory;
  predicted[static_cast<size_t>(kParameterShard)] = shards;
  predicted[static_cast<size_t>(kUnshardedParameter)] = copies;
  predicted[static_cast<size_t>(kGradient)] = gradients;
  predicted[static_cast<size_t>(kOptimizerState)] = optimizer_state(plan);
  return predicted;
}

bool has_formula(MemoryCategory category) {
  using enum MemoryCategory;
  return category == kParameterShard || category == kUnshardedParameter || category == kGradient ||
         category == kOptimizerState;
}

}  // namespace fsdp::tools
