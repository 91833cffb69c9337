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
  if (u.policy.at.parameters.turn != Placement::kWhole) u.parameters.reshard_after_forward();
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
  if (u.gradients && u.open_forwards == 0 && !u.gradients->backward_pending()) reduce(unit);
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
      const bool waits = other->awaits_backward && !other->policy.keeps_parameters();
      if (in_backward_ || unused || waits) other->parameters.reshard();
    }
    FSDP_CHECK(parameters.unshard(),
               "[fsdp] unit {}: it is needed while other units are in use, and no buffer of the "
               "arena is free: units_in_flight: expected more than {}",
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
  if (unit.policy.keeps_parameters() && !last_micro_step_) return;
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
  FSDP_CHECK(!unit.updated,
             "fsdp.update_in_backward: unit {}: a gradient came after its update; expected false",
             unit.name);
  if (unit.gradients->accumulate()) return;
  free_gradient_buffers(unit.arena);
  FSDP_CHECK(unit.gradients->accumulate(), "[fsdp] unit {}: no gradient buffer is free", unit.name);
}

void FullySharded::reduce(size_t index) {
  Unit& unit = *units_[index];
  if (!unit.gradients) return;
  // What stays partial until the next micro-step needs no collective.
  if (!last_micro_step_ && unit.policy.at.gradients.pause == Placement::kPartial) return;
  const bool updates =
      options_.update_in_backward && last_micro_step_ && unit.gradients->accumulating();
  if (!unit.gradients->borrow_for_reduce()) {
    free_gradient_buffers(unit.arena);
    FSDP_CHECK(unit.gradients->borrow_for_reduce(),
               "[fsdp] unit {}: no buffer is free for its gradients in reduce_dtype", unit.name);
  }
  unit.gradients->reduce(last_micro_step_);
  if (updates) update_soon(index);
}

// Buffers come back from units of the arena whose gradients are complete. When there is none, the
// last registered unit, which backward has normally reached first, reduces what it has so far.
void FullySharded::free_gradient_buffers(size_t arena) {
  const BufferPool& buffers = *arenas_[arena].gradients;
  const auto holds_buffer = [&](const Unit& unit) {
    return unit.arena == arena && unit.gradients && unit.gradients->holds_buffer();
  };
  for (size_t i = 0; i < units_.size(); ++i) {
    const bool complete = units_[i]->open_forwards == 0;
    if (holds_buffer(*units_[i]) && complete && !units_[i]->gradients->backward_pending())
      reduce(i);
  }
  update_units(0);
  for (size_t i = units_.size(); i-- > 0 && buffers.all_lent();) {
    if (!holds_buffer(*units_[i])) continue;
    FSDP_CHECK(
        !gives_gradients_back(options_),
        "fsdp.update_in_backward: unit {}: more units are in backward at once than buffers for "
        "gradients exist; set it to false, or wrap fewer and larger units (fsdp.wrap)",
        units_[i]->name);
    units_[i]->gradients->reduce_part();
  }
}

// ---------------------------------------------------------------------------- Updates in backward

// A unit is updated behind the next reduction where its own goes between ranks and the same stream
// computes and updates. Where a host updates, nothing that computes waits for it.
void FullySharded::update_soon(size_t unit) {
  // An update must not overtake a gather that nobody used.
  UnitParameters& parameters = units_[unit]->parameters;
  if (parameters.state() == ParameterState::kGathering) parameters.reshard();
  waiting_.push_back({.unit = unit, .flags = share_present_flags(unit)});
  update_units(mesh_.ranks() > 1 && !options_.host ? 1 : 0);
}

void FullySharded::update_units(size_t most_waiting) {
  for (; waiting_.size() > most_waiting; waiting_.pop_front()) {
    const Waiting& next = waiting_.front();
    Unit& unit = *units_[next.unit];
    unit.gradients->hand_over({.first = present_begin_[next.unit],
                               .count = static_cast<int64_t>(unit.gradients->present().size()),
                               .shared = next.flags});
    update_(unit.shard);
    unit.gradients->updated();
    unit.updated = true;
  }
}

// Those to which the last micro-step added nothing are reduced since an earlier one.
void FullySharded::update_rest() {
  update_units(0);
  for (size_t i = units_.size(); i-- > 0;) {
    if (units_[i]->gradients && !units_[i]->updated) update_soon(i);
  }
  update_units(0);
  homes_->handed_over();
}

// As share_present_flags(), beside the compute stream.
EventPtr FullySharded::share_present_flags(size_t unit) {
  Stream& stream = streams_.reduce();
  std::vector<int32_t> flags = units_[unit]->gradients->present();
  if (options_.absent_is_zero) std::fill(flags.begin(), flags.end(), 1);
  Tensor shared = present_.slice(present_begin_[unit], Shape{static_cast<int64_t>(flags.size())});
  shared.write(flags.data());
  backend().wait(stream, backend().record(backend().compute_stream()));
  mesh_.all_ranks().all_reduce(stream, shared, ReduceOp::kMax);
  return backend().record(stream);
}

// ---------------------------------------------------------------------------- Step

void FullySharded::finish_backward() {
  in_backward_ = false;
  for (size_t i = units_.size(); i-- > 0;) {
    Unit& unit = *units_[i];
    unit.open_forwards = 0;
    // Nothing came in the last micro-step, with which the replicas would have been averaged.
    // Or a unit that gives its gradient back was not used at all.
    const bool zeros =
        last_micro_step_ && unit.gradients &&
        (unit.gradients->state() == GradientState::kScattered ||
         (options_.update_in_backward && unit.gradients->state() == GradientState::kNone));
    if (zeros) accumulate(unit);
    reduce(i);
    give_back_parameters(unit);
  }
  order_->end_backward();
  backend().set_scope("");
  if (!last_micro_step_) return;
  check_same_order();
  options_.update_in_backward ? update_rest() : hand_to_optimizer();
  give_back_arenas();
}

void FullySharded::hand_to_optimizer() {
  share_present_flags();
  for (const auto& unit : units_) {
    if (unit->gradients) unit->gradients->hand_to_optimizer();
  }
  homes_->hand_over();
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
  std::vector<OptimizerShard> shards;
  for (size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i]->gradients) continue;
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
                      .of_root = i == kRootUnit || unit.part_of_root,
                      .access = segment.home});
  }
  return shards;
}

void FullySharded::finish_step() {
  homes_->set_updates(updates() + 1);
  for (const auto& unit : units_) {
    if (unit->gradients) unit->gradients->clear();
    unit->updated = false;
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
  waiting_.clear();
  for (const auto& unit : units_) {
    if (unit->gradients) unit->gradients->clear();
    unit->updated = false;
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
