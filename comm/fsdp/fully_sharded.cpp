// The schedule: which hook moves a unit along which edge of its two state machines. The machines
// are drawn in unit_parameters.h and unit_gradients.h. README.md draws one step, and has the table
// of all edges and of who takes them.
#include "comm/fsdp/fully_sharded.h"

#include <algorithm>

#include "comm/agreement.h"

namespace fsdp::comm {

// ---------------------------------------------------------------------------- Hooks

// Recompute runs forwards again in backward. They neither count nor prefetch: the next unit is then
// the one that backward needs.
void FullySharded::pre_forward(size_t unit) {
  if (unit == kRootUnit) in_backward_ = false;
  backend().set_scope(units_[unit]->name);
  if (!in_backward_) {
    order_->begin_forward(unit);
    ++units_[unit]->open_forwards;
  }
  unshard_now(unit);
  if (in_backward_) return;
  for (int ahead = 1; ahead <= options_.forward_prefetch; ++ahead) {
    const std::optional<size_t> next = order_->forward_after(unit, static_cast<size_t>(ahead));
    if (!next) break;  // there may be fewer units than the depth
    prefetch(next);
  }
}

void FullySharded::post_forward(size_t unit) {
  Unit& u = *units_[unit];
  if (u.policy.reshards_after_forward) u.parameters.reshard_after_forward();
  if (!in_backward_) order_->end_forward(unit);
  backend().set_scope(units_[u.around]->name);
}

void FullySharded::pre_backward(size_t unit) {
  in_backward_ = true;
  backend().set_scope(units_[unit]->name);
  order_->begin_backward(unit);
  unshard_now(unit);
  if (options_.backward_prefetch == BackwardPrefetch::kPre) {
    prefetch(order_->backward_next());
  }
}

void FullySharded::post_backward(size_t unit) {
  Unit& u = *units_[unit];
  give_back_parameters(u);
  if (options_.backward_prefetch == BackwardPrefetch::kPost) {
    prefetch(order_->backward_next());
  }
  u.open_forwards = std::max(u.open_forwards - 1, 0);
  if (u.gradients && u.open_forwards == 0 && !u.gradients->backward_pending()) reduce(u);
  backend().set_scope(units_[u.around]->name);
}

// The first contribution to a parameter's gradient asks where to write.
Tensor FullySharded::gradient_memory(size_t unit, size_t parameter) {
  accumulate(*units_[unit]);
  return units_[unit]->gradients->memory_of(parameter);
}

// ---------------------------------------------------------------------------- Parameters

// When no buffer is free, units of the same arena give buffers back: a unit that was gathered ahead
// and not used (a skipped block), one that is only kept because it awaits its backward (another
// forward comes first), and in backward a unit that is done and had no post_backward, because its
// input needed no gradient.
void FullySharded::unshard_now(size_t unit) {
  UnitParameters& parameters = units_[unit]->parameters;
  if (!parameters.unshard()) {
    for (const auto& other : units_) {
      if (other->arena != units_[unit]->arena) continue;
      const bool unused = other->parameters.state() == ParameterState::kGathering;
      const bool waits = other->awaits_backward && !other->policy.keeps_parameters;
      if (in_backward_ || unused || waits) other->parameters.reshard();
    }
    FSDP_CHECK(parameters.unshard(),
               "[fsdp] unit {}: needed beside others that are in use, but no buffer of the arena "
               "is free: units_in_flight: expected more than {}",
               units_[unit]->name, options_.units_in_flight);
  }
  parameters.wait_unsharded();
}

// A prefetch that finds no buffer is left to the moment of need.
void FullySharded::prefetch(std::optional<size_t> unit) {
  if (unit && *unit != kRootUnit) units_[*unit]->parameters.unshard();
}

// After a backward: reshards, unless a strategy that keeps parameters has micro-steps to come.
void FullySharded::give_back_parameters(Unit& unit) {
  if (unit.policy.keeps_parameters && !last_micro_step_) return;
  unit.parameters.reshard();
  if (!unit.policy.releases_memory || !last_micro_step_) return;
  for (size_t i = 0; i < units_.size(); ++i) {
    const Unit& other = *units_[i];
    const bool waits =
        other.arena == unit.arena && order_->comes_in_backward(i) && !other.parameters.has_values();
    if (waits) return;  // the other has yet to be gathered into a buffer of this arena
  }
  arenas_[unit.arena].parameters->give_back();
}

// ---------------------------------------------------------------------------- Gradients

void FullySharded::accumulate(Unit& unit) {
  if (unit.gradients->accumulate()) return;
  free_gradient_buffers(unit.arena);
  FSDP_CHECK(unit.gradients->accumulate(), "[fsdp] unit {}: no gradient buffer is free", unit.name);
}

void FullySharded::reduce(Unit& unit) {
  if (!unit.gradients || (unit.policy.reduces_last && !last_micro_step_)) return;
  if (!unit.gradients->borrow_for_reduce()) {
    free_gradient_buffers(unit.arena);
    FSDP_CHECK(unit.gradients->borrow_for_reduce(),
               "[fsdp] unit {}: no buffer is free for its gradients in reduce_dtype", unit.name);
  }
  unit.gradients->reduce(last_micro_step_);
}

// Buffers come back from units of the arena whose gradients are complete. When there is none, the
// last registered unit, which backward has normally reached first, reduces what it has so far.
void FullySharded::free_gradient_buffers(size_t arena) {
  const BufferPool& buffers = *arenas_[arena].gradients;
  const auto holds_buffer = [&](const Unit& unit) {
    return unit.arena == arena && unit.gradients && unit.gradients->holds_buffer();
  };
  for (const auto& unit : units_) {
    const bool complete = unit->open_forwards == 0;
    if (holds_buffer(*unit) && complete && !unit->gradients->backward_pending()) reduce(*unit);
  }
  for (size_t i = units_.size(); i-- > 0 && buffers.all_lent();) {
    if (holds_buffer(*units_[i])) units_[i]->gradients->reduce_part();
  }
}

// ---------------------------------------------------------------------------- Step

void FullySharded::finish_backward() {
  in_backward_ = false;
  for (size_t i = units_.size(); i-- > 0;) {
    Unit& unit = *units_[i];
    unit.open_forwards = 0;
    // Nothing came in the last micro-step, with which the replicas would have been averaged.
    const bool zeros =
        last_micro_step_ && unit.gradients && unit.gradients->state() == GradientState::kScattered;
    if (zeros) accumulate(unit);
    reduce(unit);
    give_back_parameters(unit);
  }
  order_->end_backward();
  backend().set_scope("");
  if (!last_micro_step_) return;
  check_same_order();
  share_present_flags();
  for (const auto& unit : units_) {
    if (unit->gradients) unit->gradients->hand_to_optimizer();
  }
  homes_->hand_over();
  give_back_arenas();
}

// Once, on the host, which has only enqueued the step so far: ranks that are out of step are told
// before they wait for each other for ever.
void FullySharded::check_same_order() {
  if (order_checked_) return;
  order_checked_ = true;
  check_same_on_all(mesh_.all_ranks(), "collectives in the first step",
                    order_of_calls(mesh_.of_a_step()));
}

void FullySharded::share_present_flags() {
  std::vector<int32_t> flags;
  for (const auto& unit : units_) {
    if (!unit->gradients) continue;
    const std::vector<int32_t>& present = unit->gradients->present();
    flags.insert(flags.end(), present.begin(), present.end());
  }
  if (flags.empty()) return;
  if (options_.absent_is_zero) std::fill(flags.begin(), flags.end(), 1);
  const auto count = static_cast<int64_t>(flags.size());
  present_.slice(0, Shape{count}).write(flags.data());
  mesh_.all_ranks().all_reduce(backend().compute_stream(), present_, ReduceOp::kMax);
}

std::vector<OptimizerShard> FullySharded::optimizer_shards() const {
  std::vector<size_t> trained;
  for (size_t i = 0; i < units_.size(); ++i) {
    if (units_[i]->gradients) trained.push_back(i);
  }
  std::stable_partition(trained.begin(), trained.end(),
                        [&](size_t i) { return i == kRootUnit || units_[i]->part_of_root; });
  std::vector<OptimizerShard> shards;
  for (const size_t i : trained) {
    const Unit& unit = *units_[i];
    const ParameterSegment& segment = *unit.parameters.trainable();
    const ShardHome::Tensors tensors = segment.home->for_optimizer();
    const auto flags = static_cast<int64_t>(segment.layout.parameters().size());
    shards.push_back({.name = unit.name,
                      .layout = segment.layout,
                      .index = mesh_.shard_index(),
                      .master = tensors.master,
                      .gradient = tensors.gradient,
                      .copy = tensors.copy,
                      .present = flags_.slice(present_begin_[i], Shape{flags}),
                      .norm_by_blocks = options_.fixed_order,
                      .access = segment.home});
  }
  return shards;
}

void FullySharded::finish_step() {
  homes_->set_updates(updates() + 1);
  for (const auto& unit : units_) {
    if (unit->gradients) unit->gradients->clear();
  }
  homes_->updated();
  for (const auto& unit : units_) unit->parameters.expire();
  clear_overflow();
}

void FullySharded::masters_written() {
  homes_->masters_written();
  for (const auto& unit : units_) unit->parameters.written();
  homes_->updated();
}

void FullySharded::clear_overflow() {
  backend().fill_zero(backend().compute_stream(), runtime_.overflow.data(),
                      runtime_.overflow.bytes());
}

void FullySharded::give_back_arenas() {
  for (const Arena& arena : arenas_) {
    arena.parameters->give_back();
    arena.gradients->give_back();
  }
  homes_->give_back();
}

void FullySharded::reset() {
  in_backward_ = false;
  homes_->drop_gradients();
  for (const auto& unit : units_) {
    if (unit->gradients) unit->gradients->clear();
    unit->open_forwards = 0;
    unit->parameters.reshard();
  }
  give_back_arenas();
  clear_overflow();
  backend().set_scope("");
}

void FullySharded::recover() {
  drain_streams();
  // Nothing is left to wait for, and an event of the step that threw would pass its error on.
  for (const Arena& arena : arenas_) {
    arena.parameters->forget_events();
    arena.gradients->forget_events();
  }
  homes_->forget_events();
  for (const auto& unit : units_) {
    unit->parameters.forget_events();
    if (unit->gradients) unit->gradients->forget_events();
  }
  reset();
  // The gather behind a resident value may have been skipped.
  for (const auto& unit : units_) unit->parameters.expire();
}

}  // namespace fsdp::comm
