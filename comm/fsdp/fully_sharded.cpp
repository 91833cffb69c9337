// The schedule: which hook moves a unit along which edge of its two state machines, drawn in
// unit_parameters.h and unit_gradients.h. In fully_sharded.h it is drawn over the blocks.
//
//                    its parameters                       its gradients
//   pre_forward      SHARDED -> UNSHARDED     demand()
//                    later units -> GATHERING prefetch()
//   post_forward     UNSHARDED -> SHARDED     unless it keeps them, or is the root
//   pre_backward     SHARDED -> UNSHARDED     demand()
//                    the next one -> GATHERING prefetch()
//   first gradient                                        NONE, REDUCED -> ACCUMULATING
//   post_backward    UNSHARDED -> SHARDED                 ACCUMULATING -> REDUCED     reduce()
//   finish_backward  the same for the root, and for units that did not notice their end
//   finish_step      kept: UNSHARDED -> SHARDED           REDUCED -> NONE             clear()
#include "comm/fsdp/fully_sharded.h"

#include <algorithm>

#include "comm/agreement.h"

namespace fsdp::comm {
namespace {

constexpr size_t kRoot = 0;

}  // namespace

// ---------------------------------------------------------------------------- Hooks

// Unshards now. When no buffer is free, two kinds come back from units of the same depth, with
// which this one shares them: those of prefetches that nobody used (a skipped block), and in
// backward those of units that are done but did not notice, because their input needed no gradient.
void FullySharded::demand(size_t unit) {
  UnitParameters& parameters = units_[unit]->parameters;
  if (!parameters.unshard()) {
    for (const auto& other : units_) {
      if (other->depth != units_[unit]->depth) continue;
      const bool unused = other->parameters.state() == ParameterState::kGathering;
      if (in_backward_ || unused) other->parameters.reshard();
    }
    parameters.unshard();
  }
  parameters.wait_unsharded();
}

// The first contribution to a parameter's gradient asks where to write.
Tensor FullySharded::gradient_memory(size_t unit, size_t parameter) {
  accumulate(*units_[unit]);
  return units_[unit]->gradients->memory_of(parameter);
}

void FullySharded::accumulate(Unit& unit) {
  if (unit.gradients->accumulate()) return;
  free_gradient_buffers(unit.depth);
  FSDP_CHECK(unit.gradients->accumulate(), "[fsdp] unit {}: no gradient buffer is free", unit.name);
}

// Buffers come back from units of the same depth whose gradients are complete. When there is none,
// the unit that backward reached first gives up what it has so far.
void FullySharded::free_gradient_buffers(int depth) {
  const BufferPool& arena = *arenas_[static_cast<size_t>(depth)].gradients;
  const auto borrows = [&](const Unit& unit) {
    return unit.gradients && unit.gradients->borrows_from(arena);
  };
  for (const auto& unit : units_) {
    const bool complete = unit->open_forwards == 0;
    if (borrows(*unit) && complete && !unit->gradients->backward_pending()) reduce(*unit);
  }
  for (size_t i = units_.size(); i-- > 0 && arena.all_lent();) {
    if (borrows(*units_[i])) units_[i]->gradients->reduce_part();
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
    const std::optional<size_t> next = order_->forward_after(unit, static_cast<size_t>(ahead));
    if (!next) break;  // there may be fewer units than the depth
    prefetch(next);
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
  arenas_[static_cast<size_t>(unit.depth)].parameters->give_back();
}

void FullySharded::reduce(Unit& unit) {
  if (!unit.gradients || (!last_micro_step_ && reduces_last(options()))) return;
  if (!unit.gradients->ready_to_reduce()) {
    free_gradient_buffers(unit.depth);
    FSDP_CHECK(unit.gradients->ready_to_reduce(), "[fsdp] unit {}: no gradient buffer is free",
               unit.name);
  }
  unit.gradients->reduce(last_micro_step_);
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
    if (!unit->gradients) continue;
    if (unit->gradients->replicas_differ()) {
      accumulate(*unit);
      reduce(*unit);
    }
    unit->gradients->complete();
  }
  for (const Arena& arena : arenas_) arena.give_back();
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
    const auto flags = static_cast<int64_t>(segment.layout.parameters().size());
    shards.push_back({.name = unit.name,
                      .layout = segment.layout,
                      .index = mesh_->shard_index(),
                      .master = segment.master,
                      .gradient = unit.gradients->shard(),
                      .copy = unit.parameters.rounds_by_chance() ? Tensor() : segment.copy,
                      .present = present_.slice(present_begin_[i], Shape{flags}),
                      .norm_by_blocks = options().fixed_order});
  }
  return shards;
}

void FullySharded::finish_step() {
  ++runtime_.updates;
  for (const auto& unit : units_) {
    if (unit->parameters.rounds_by_chance()) unit->parameters.master_changed();
  }
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
  for (const Arena& arena : arenas_) arena.give_back();
  clear_overflow();
  backend().set_scope("");
}

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

void FullySharded::recover() {
  drain_streams();
  // Nothing is left to wait for, and an event of the step that threw would pass its error on.
  for (const Arena& arena : arenas_) {
    arena.parameters->forget_events();
    arena.gradients->forget_events();
  }
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
