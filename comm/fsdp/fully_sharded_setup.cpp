// Construction: the groups of ranks, the units with their memory, and the hooks of their modules.
#include <algorithm>

#include "comm/agreement.h"
#include "comm/fsdp/fully_sharded.h"

namespace fsdp::comm {
namespace {

constexpr size_t kRoot = 0;

std::unique_ptr<Mesh> make_mesh(Communicator& world, const FsdpOptions& o) {
  check_same_on_all(world, "options", texts_of(o));
  check_options(o, world.size());
  FSDP_CHECK(
      !o.fixed_order || world.sums_in_rank_order(),
      "fsdp.fixed_order: NCCL orders sums in its own way; expected a transport through the host");
  return std::make_unique<Mesh>(world, shard_group_size(o, world.size()), o.separate_reduce);
}

void check_same_plan(Communicator& world, const std::vector<PlannedUnit>& units,
                     const std::vector<FsdpOptions>& options) {
  std::vector<std::string> entries;
  for (size_t i = 0; i < units.size(); ++i) {
    const PlannedUnit& unit = units[i];
    for (const std::string& option : texts_of(options[i])) {
      entries.push_back(fmt::format("unit {}: {}", unit.name, option));
    }
    for (const Parameter* p : unit.parameters) {
      entries.push_back(fmt::format("unit {}: {} {}{}", unit.name, p->name(), p->shape().str(),
                                    p->trainable() ? "" : " frozen"));
    }
  }
  check_same_on_all(world, "units", entries);
}

}  // namespace

Unit::Unit(FsdpRuntime& runtime, const PlannedUnit& plan, const FsdpOptions& unit_options,
           Communicator* inner)
    : name(plan.name),
      depth(plan.depth),
      around(plan.around),
      options(unit_options),
      parameters(runtime, plan.name, plan.parameters, options, inner) {
  if (const ParameterSegment* segment = parameters.trainable()) {
    gradients.emplace(runtime, plan.name, options, *segment);
  }
}

FullySharded::FullySharded(Module& root, const WrapPolicy& wrap, const FsdpOptions& options,
                           Backend& backend, Communicator& world)
    : mesh_(make_mesh(world, options)),
      gather_stream_(backend.create_stream("gather")),
      reduce_stream_(options.separate_reduce ? backend.create_stream("reduce") : nullptr),
      replica_stream_(backend.create_stream("replicas")),
      world_(world.duplicate("flags")),
      runtime_{.backend = backend,
               .options = options,
               .mesh = *mesh_,
               .gather_stream = *gather_stream_,
               .reduce_stream = reduce_stream_ ? *reduce_stream_ : *gather_stream_,
               .replica_stream = *replica_stream_} {
  if (options.fixed_order && mesh_->shards() > 1 && mesh_->replicas() > 1) {
    everyone_ = world.duplicate("reduce all");
    runtime_.everyone = everyone_.get();
  }
  const std::vector<PlannedUnit> plans = plan_units(root, wrap);
  const std::vector<FsdpOptions> own_options = unit_options(options, plans, mesh_->shards());
  // Before memory of different sizes is asked for.
  check_same_plan(*world_, plans, own_options);
  order_.emplace(plans);
  int64_t flags = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    add_unit(plans[i], own_options[i]);
    present_begin_.push_back(flags);
    const auto& gradients = units_[i]->gradients;
    if (gradients) flags += static_cast<int64_t>(gradients->present().size());
  }
  present_ =
      Tensor::zeros(backend, Shape{flags + 1}, DType::kI32, MemoryCategory::kOptimizerState);
  runtime_.overflow = present_.slice(flags, Shape{});
  int deepest = 0;
  for (const PlannedUnit& plan : plans) deepest = std::max(deepest, plan.depth);
  for (int depth = 0; depth <= deepest; ++depth) make_arena(depth);
}

// Streams may still hold work that touches members; errors were reported where they were waited
// for.
FullySharded::~FullySharded() { drain_streams(); }

void FullySharded::add_unit(const PlannedUnit& plan, const FsdpOptions& options) {
  const size_t unit = units_.size();
  units_.push_back(std::make_unique<Unit>(runtime_, plan, options, inner_group(plan, options)));
  if (const ParameterSegment* segment = units_.back()->parameters.trainable()) {
    const std::vector<FlatParameter>& parameters = segment->layout.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].parameter->set_gradient_memory(
          [this, unit, i] { return gradient_memory(unit, i); });
    }
  }
  add_hooks(*plan.module, unit);
}

// The root stays gathered from forward to backward: it has no use for one.
Communicator* FullySharded::inner_group(const PlannedUnit& plan, const FsdpOptions& options) {
  const int size = plan.depth > 0 ? inner_group_size(options, mesh_->shards()) : 0;
  if (size == 0) return nullptr;
  std::unique_ptr<Communicator>& group = inner_[size];
  if (!group) group = mesh_->inner_group(size);
  return group.get();
}

// Units of one depth that need buffers share them in rotation. The root, alone at its depth, has
// one to itself: it lives through the whole step.
void FullySharded::make_arena(int depth) {
  std::vector<UnitParameters*> parameters;
  std::vector<UnitGradients*> gradients;
  size_t kept_here = 0;  // with release_arena: until the end of backward
  for (const auto& unit : units_) {
    if (unit->depth != depth) continue;
    if (unit->parameters.arena_bytes() > 0) {
      parameters.push_back(&unit->parameters);
      kept_here += kept(*unit);
    }
    if (unit->gradients && unit->gradients->arena_bytes() > 0) {
      gradients.push_back(&*unit->gradients);
    }
  }
  const auto share = [&](const auto& users, Communicator& group, size_t buffers,
                         MemoryCategory category) {
    size_t bytes = 0;
    for (const auto* user : users) bytes = std::max(bytes, user->arena_bytes());
    const auto lifetime = options().release_arena ? BufferPool::Lifetime::kUntilGivenBack
                                                  : BufferPool::Lifetime::kPool;
    auto pool = std::make_unique<BufferPool>(group, backend(), std::min(users.size(), buffers),
                                             bytes, category, lifetime);
    for (size_t i = 0; i < users.size(); ++i) users[i]->use_pool(*pool, static_cast<int>(i));
    return pool;
  };
  const size_t in_flight = static_cast<size_t>(options().units_in_flight) + kept_here;
  arenas_.push_back({.parameters = share(parameters, mesh_->gather(), in_flight,
                                         MemoryCategory::kUnshardedParameter),
                     .gradients = share(gradients, mesh_->reduce(), size_t{kGradientBuffers},
                                        MemoryCategory::kGradient)});
}

void FullySharded::add_hooks(Module& module, size_t unit) {
  const DType own = units_[unit]->options.param_dtype;
  const DType around = units_[units_[unit]->around]->options.param_dtype;
  const bool casts = own != around;
  module.set_hooks({.pre_forward = [this, unit] { pre_forward(unit); },
                    .post_forward = [this, unit] { post_forward(unit); },
                    .pre_backward = [this, unit] { pre_backward(unit); },
                    .post_backward = unit == kRoot ? std::function<void()>()
                                                   : [this, unit] { post_backward(unit); },
                    .input_dtype = casts ? std::optional(own) : std::nullopt,
                    .output_dtype = casts ? std::optional(around) : std::nullopt});
}

}  // namespace fsdp::comm
