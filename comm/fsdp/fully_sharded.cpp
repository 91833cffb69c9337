// Schedule of gathers and reduces; see the drawing in fully_sharded.h.
#include "comm/fsdp/fully_sharded.h"

#include <algorithm>

#include "comm/agreement.h"

namespace fsdp::comm {
namespace {

constexpr size_t kRoot = 0;

// Ranks that disagree about these would form groups that fit by chance and train something else.
std::unique_ptr<Mesh> make_mesh(Communicator& world, const FsdpOptions& o) {
  const std::vector<std::string> entries = {
      fmt::format("strategy {}, shard_size {}, reshard_group_size {}, separate_reduce {}",
                  static_cast<int>(o.strategy), o.shard_size, o.reshard_group_size,
                  o.separate_reduce),
      fmt::format("param_dtype {}, reduce_dtype {}", name_of(o.param_dtype),
                  name_of(o.reduce_dtype)),
      fmt::format("accumulation {}, micro_steps {}, fixed_order {}",
                  static_cast<int>(o.accumulation), o.micro_steps, o.fixed_order)};
  check_same_on_all(world, "options", entries);
  check_options(o, world.size());
  return std::make_unique<Mesh>(world, shard_group_size(o, world.size()), o.separate_reduce);
}

void check_same_plan(Communicator& world, const std::vector<PlannedUnit>& units,
                     const std::vector<FsdpOptions>& options) {
  std::vector<std::string> entries;
  for (size_t i = 0; i < units.size(); ++i) {
    const PlannedUnit& unit = units[i];
    const FsdpOptions& o = options[i];
    entries.push_back(
        fmt::format("unit {}: strategy {}, reshard_after_forward {}, reshard_group_size {}, {}, {}",
                    unit.name, static_cast<int>(o.strategy), !keeps_parameters(o, world.size()),
                    o.reshard_group_size, name_of(o.param_dtype), name_of(o.reduce_dtype)));
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
                           Tape& tape, Communicator& world)
    : mesh_(make_mesh(world, options)),
      gather_stream_(tape.backend().create_stream("gather")),
      reduce_stream_(options.separate_reduce ? tape.backend().create_stream("reduce") : nullptr),
      replica_stream_(tape.backend().create_stream("replicas")),
      world_(world.duplicate("flags")),
      runtime_{tape.backend(),
               options,
               *mesh_,
               *gather_stream_,
               reduce_stream_ ? *reduce_stream_ : *gather_stream_,
               *replica_stream_,
               nullptr,
               nullptr,
               {},
               [this](const BufferPool& arena) { free_gradient_buffers(arena); }} {
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
    add_unit(plans[i], own_options[i], tape);
    present_begin_.push_back(flags);
    const auto& gradients = units_[i]->gradients;
    if (gradients) flags += static_cast<int64_t>(gradients->present().size());
  }
  present_ =
      Tensor::zeros(backend(), Shape{flags + 1}, DType::kI32, MemoryCategory::kOptimizerState);
  runtime_.overflow = present_.slice(flags, Shape{});
  int deepest = 0;
  for (const PlannedUnit& plan : plans) deepest = std::max(deepest, plan.depth);
  for (int depth = 0; depth <= deepest; ++depth) make_pools(depth);
}

void FullySharded::add_unit(const PlannedUnit& plan, const FsdpOptions& options, Tape& tape) {
  units_.push_back(std::make_unique<Unit>(runtime_, plan, options, inner_group(plan, options)));
  auto& gradients = units_.back()->gradients;
  for (Parameter* parameter : plan.parameters) {
    parameter->attach(&tape, gradients ? &*gradients : nullptr);
  }
  add_hooks(*plan.module, units_.size() - 1);
}

// The root stays gathered from forward to backward: it has no use for one.
Communicator* FullySharded::inner_group(const PlannedUnit& plan, const FsdpOptions& options) {
  const int size = plan.depth > 0 ? inner_group_size(options, mesh_->shards()) : 0;
  if (size == 0) return nullptr;
  std::unique_ptr<Communicator>& group = inner_[size];
  if (!group) group = mesh_->inner_group(size);
  return group.get();
}

// Streams may still hold work that touches members; errors were reported where they were waited
// for.
FullySharded::~FullySharded() { drain_streams(); }

void FullySharded::drain_streams() {
  for (Stream* stream : {&backend().compute_stream(), gather_stream_.get(), reduce_stream_.get(),
                         replica_stream_.get()}) {
    if (!stream) continue;
    try {
      backend().synchronize(*stream);
    } catch (const Error&) {
    }
  }
}

// Units of one depth that need buffers share them in rotation. The root, alone at its depth, has
// one to itself: it lives through the whole step.
void FullySharded::make_pools(int depth) {
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
    pools_.push_back(std::make_unique<BufferPool>(group, backend(), std::min(users.size(), buffers),
                                                  bytes, category, lifetime));
    for (size_t i = 0; i < users.size(); ++i) {
      users[i]->use_pool(*pools_.back(), static_cast<int>(i));
    }
  };
  share(parameters, mesh_->gather(), static_cast<size_t>(options().units_in_flight) + kept_here,
        MemoryCategory::kUnshardedParameter);
  share(gradients, mesh_->reduce(), size_t{kGradientBuffers}, MemoryCategory::kGradient);
}

// ---------------------------------------------------------------------------- Hooks

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

// Unshards now. When no buffer is free, two kinds come back: those of prefetches that nobody used
// (a skipped block), and in backward those of units of the same depth that are done but did not
// notice, because their input needed no gradient.
void FullySharded::demand(size_t unit) {
  UnitParameters& parameters = units_[unit]->parameters;
  if (!parameters.unshard()) {
    for (const auto& other : units_) {
      const bool done = in_backward_ && other->depth == units_[unit]->depth;
      if (done || other->parameters.state() == ParameterState::kGathering) {
        other->parameters.reshard();
      }
    }
    parameters.unshard();
  }
  parameters.wait_unsharded();
}

// The same for gradients: reduces those that are complete. When none is, the unit that backward
// reached first gives up what it has so far.
void FullySharded::free_gradient_buffers(const BufferPool& arena) {
  for (const auto& unit : units_) {
    const bool complete = unit->open_forwards == 0;
    if (complete && unit->gradients && !unit->gradients->backward_pending()) reduce(*unit);
  }
  for (size_t i = units_.size(); i-- > 0 && arena.all_lent();) {
    std::optional<UnitGradients>& gradients = units_[i]->gradients;
    if (gradients && gradients->borrows_from(arena)) gradients->reduce_part();
  }
}

// A prefetch that finds no buffer is left to the moment of need.
void FullySharded::prefetch(std::optional<size_t> unit) {
  if (unit && *unit != kRoot) units_[*unit]->parameters.unshard();
}

// Recompute enters units again in backward, where the next forward is not what comes next.
void FullySharded::pre_forward(size_t unit) {
  if (unit == kRoot) in_backward_ = false;
  backend().set_scope(units_[unit]->name);
  if (!in_backward_) {
    order_->begin_forward(unit);
    ++units_[unit]->open_forwards;
  }
  demand(unit);
  if (in_backward_) return;
  for (int ahead = 1; ahead <= runtime_.options.forward_prefetch; ++ahead) {
    prefetch(order_->forward_after(unit, static_cast<size_t>(ahead)));
  }
}

void FullySharded::post_forward(size_t unit) {
  // The root is needed again at once in backward: it stays.
  if (unit != kRoot && !kept(*units_[unit])) units_[unit]->parameters.reshard_after_forward();
  if (!in_backward_) order_->end_forward(unit);
  backend().set_scope(units_[units_[unit]->around]->name);
}

void FullySharded::pre_backward(size_t unit) {
  in_backward_ = true;
  backend().set_scope(units_[unit]->name);
  order_->begin_backward(unit);
  demand(unit);
  if (runtime_.options.backward_prefetch == BackwardPrefetch::kPre) {
    prefetch(order_->backward_next());
  }
}

void FullySharded::post_backward(size_t unit) {
  Unit& u = *units_[unit];
  give_back_parameters(u);
  if (runtime_.options.backward_prefetch == BackwardPrefetch::kPost) {
    prefetch(order_->backward_next());
  }
  u.open_forwards = std::max(u.open_forwards - 1, 0);
  if (u.gradients && u.open_forwards == 0 && !u.gradients->backward_pending()) reduce(u);
  backend().set_scope(units_[u.around]->name);
}

bool FullySharded::kept(const Unit& unit) const {
  return keeps_parameters(unit.options, mesh_->shards());
}

// After a backward: reshards, unless a strategy that keeps parameters has micro-steps to come.
void FullySharded::give_back_parameters(Unit& unit) {
  if (kept(unit) && !last_micro_step_) return;
  unit.parameters.reshard();
  if (!options().release_arena || !last_micro_step_) return;
  for (size_t i = 0; i < units_.size(); ++i) {
    const Unit& other = *units_[i];
    const bool waits = other.depth == unit.depth && order_->comes_in_backward(i) &&
                       other.parameters.state() == ParameterState::kSharded;
    if (waits) return;  // for one of these buffers
  }
  pools_[2 * static_cast<size_t>(unit.depth)]->give_back();
}

void FullySharded::reduce(Unit& unit) {
  if (unit.gradients && (last_micro_step_ || !reduces_last(options()))) {
    unit.gradients->reduce(last_micro_step_);
  }
}

// ---------------------------------------------------------------------------- Step

void FullySharded::finish_backward() {
  in_backward_ = false;
  for (size_t i = units_.size(); i-- > 0;) {
    units_[i]->open_forwards = 0;
    reduce(*units_[i]);
    give_back_parameters(*units_[i]);
  }
  order_->end_backward();
  backend().set_scope("");
  if (!last_micro_step_) return;
  check_same_order();
  share_present_flags();
  for (const auto& unit : units_) {
    if (unit->gradients) unit->gradients->complete();
  }
  for (const auto& pool : pools_) pool->give_back();
}

// Once, on the host, which has only enqueued the step so far: ranks that are out of step are told
// before they wait for each other for ever.
void FullySharded::check_same_order() {
  if (order_checked_) return;
  order_checked_ = true;
  std::vector<const Communicator*> groups = {&mesh_->gather(), &mesh_->across_replicas()};
  if (mesh_->separate_reduce()) groups.push_back(&mesh_->reduce());
  for (const auto& [size, group] : inner_) groups.push_back(group.get());
  if (everyone_) groups.push_back(everyone_.get());
  check_same_on_all(*world_, "collectives in the first step", order_of_calls(groups));
}

void FullySharded::share_present_flags() {
  std::vector<int32_t> flags;
  for (const auto& unit : units_) {
    if (!unit->gradients) continue;
    const std::vector<int32_t>& present = unit->gradients->present();
    flags.insert(flags.end(), present.begin(), present.end());
  }
  if (flags.empty()) return;
  if (options().absent_is_zero) std::fill(flags.begin(), flags.end(), 1);
  const auto count = static_cast<int64_t>(flags.size());
  present_.slice(0, Shape{count}).write(flags.data());
  world_->all_reduce(backend().compute_stream(), present_, ReduceOp::kMax);
}

std::vector<OptimizerShard> FullySharded::optimizer_shards() const {
  std::vector<OptimizerShard> shards;
  for (size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = *units_[i];
    if (!unit.gradients) continue;
    const ParameterSegment& segment = *unit.parameters.trainable();
    const int64_t count = static_cast<int64_t>(segment.layout.parameters().size());
    shards.push_back({.name = unit.name,
                      .master = segment.master,
                      .gradient = unit.gradients->shard(),
                      .copy = segment.copy,
                      .present = present_.slice(present_begin_[i], Shape{count}),
                      .segments = segment.layout.segments(mesh_->shard_index()),
                      .spans = segment.layout.spans(mesh_->shard_index()),
                      .parameters = count});
    if (!options().fixed_order) continue;
    shards.back().first_blocks = segment.layout.first_blocks(mesh_->shard_index());
    shards.back().blocks = segment.layout.blocks();
  }
  return shards;
}

void FullySharded::finish_step() {
  runtime_.parameters_updated = backend().record(backend().compute_stream());
  for (const auto& unit : units_) {
    if (unit->gradients) unit->gradients->clear();
    unit->parameters.mark_updated();
  }
  clear_overflow();
}

void FullySharded::clear_overflow() {
  backend().fill_zero(backend().compute_stream(), runtime_.overflow.data(),
                      runtime_.overflow.bytes());
}

void FullySharded::reset() {
  in_backward_ = false;
  for (const auto& unit : units_) {
    if (unit->gradients) unit->gradients->clear();
    unit->open_forwards = 0;
    unit->parameters.reshard();
  }
  for (const auto& pool : pools_) pool->give_back();
  clear_overflow();
  backend().set_scope("");
}

void FullySharded::recover() {
  drain_streams();
  // Nothing is left to wait for, and an event of the step that threw would pass its error on.
  for (const auto& pool : pools_) pool->forget_events();
  for (const auto& unit : units_) {
    unit->parameters.forget_events();
    if (unit->gradients) unit->gradients->forget_events();
  }
  reset();
  // The gather behind a resident value may have been skipped.
  for (const auto& unit : units_) unit->parameters.mark_updated();
  runtime_.parameters_updated = nullptr;
}

}  // namespace fsdp::comm
