// The edges of the gradient state machine; see the drawing in unit_gradients.h.
#include "comm/fsdp/unit_gradients.h"

#include <algorithm>

#include "core/scope.h"

namespace fsdp::comm {

// ---------------------------------------------------------------------------- Memory

UnitGradients::UnitGradients(FsdpRuntime& runtime, std::string name, const UnitPolicy& policy,
                             const ParameterSegment& segment)
    : runtime_(runtime),
      name_(std::move(name)),
      policy_(policy),
      layout_(segment.layout),
      home_(*segment.home),
      reduction_(runtime, policy, layout_),
      present_(layout_.parameters().size(), 0) {
  Backend& backend = runtime_.backend;
  const Scope scope(backend, name_);
  const auto unbound = [&](int64_t numel, DType dtype) {
    return Storage::unbound(backend, static_cast<size_t>(numel) * size_of(dtype),
                            MemoryCategory::kGradient);
  };
  unsharded_ = unbound(layout_.numel(), policy_.gradient_dtype);
  unsharded_->set_label("gradients of unit " + name_);
  const int64_t count = layout_.shard_numel();
  const auto memory = policy_.averages_in_place ? unsharded_ : unbound(count, policy_.sum_dtype);
  shard_ = Tensor(memory, 0, Shape{count}, policy_.sum_dtype);
  home_.keep_gradient(shard_, policy_.averages_in_place);
  // Each step allocates both.
  if (policy_.releases_memory || policy_.gives_gradients_back()) return;
  if (policy_.keeps_gradients()) allocate_unsharded();
  allocate_shard();
}

void UnitGradients::allocate_unsharded() {
  if (own_) return;
  own_ = runtime_.mesh.reduce().allocate(runtime_.backend, unsharded_->bytes(),
                                         MemoryCategory::kGradient);
  unsharded_->bind(own_->data());
}

// After hand_to_optimizer() or clear() made the compute stream wait for the last reduction.
void UnitGradients::release_unsharded() {
  if (!own_) return;
  unsharded_->unbind();
  own_ = nullptr;
}

// In the order of the compute stream, for which the streams that reduce wait then.
void UnitGradients::allocate_shard() {
  if (!policy_.averages_in_place) return home_.allocate_gradient();
  if (policy_.keeps_gradients()) allocate_unsharded();
}

size_t UnitGradients::arena_bytes() const {
  if (policy_.keeps_gradients() && !policy_.narrows_gradients()) return 0;
  return static_cast<size_t>(layout_.numel()) * size_of(policy_.reduce_dtype);
}

bool UnitGradients::borrow() {
  if (!holds_buffer()) buffer_ = pool_->acquire(preferred_);
  return holds_buffer();
}

void UnitGradients::give_buffer_back(EventPtr done) {
  if (!policy_.keeps_gradients()) unsharded_->unbind();
  if (holds_buffer()) pool_->release(buffer_, std::move(done));
  buffer_ = BufferPool::kNone;
}

// Backward writes over the shard now; the reduction adds what was there.
void UnitGradients::set_shard_aside() {
  Backend& backend = runtime_.backend;
  if (!set_aside_.defined()) {
    set_aside_ = Tensor::empty(backend, shard_.shape(), shard_.dtype(), MemoryCategory::kGradient);
  }
  backend.copy(backend.compute_stream(), set_aside_.data(), shard_.data(), shard_.bytes());
}

Tensor UnitGradients::memory_of(size_t parameter) const {
  const FlatParameter& p = layout_.parameters().at(parameter);
  const DType dtype = policy_.gradient_dtype;
  return Tensor(unsharded_, p.offset * static_cast<int64_t>(size_of(dtype)), p.parameter->shape(),
                dtype);
}

// ---------------------------------------------------------------------------- Edges

bool UnitGradients::accumulating() const {
  using enum GradientState;
  return state_ == kAccumulating || state_ == kAddingToReduced || state_ == kAddingToScattered;
}

bool UnitGradients::accumulate() {
  using enum GradientState;
  if (accumulating()) return true;
  Backend& backend = runtime_.backend;
  if (policy_.keeps_gradients()) {
    allocate_unsharded();
    backend.wait(backend.compute_stream(), reduced_);  // of the micro-step before
    if (policy_.averages_in_place) backend.wait(backend.compute_stream(), home_.sent());
    if (policy_.averages_in_place && state_ != kNone) set_shard_aside();
  } else {
    if (!borrow()) return false;
    backend.wait(backend.compute_stream(), pool_->free_since(buffer_));
    unsharded_->bind(pool_->data(buffer_));
  }
  state_ = state_ == kNone        ? kAccumulating
           : state_ == kScattered ? kAddingToScattered
                                  : kAddingToReduced;
  return true;
}

bool UnitGradients::backward_pending() const {
  return std::any_of(layout_.parameters().begin(), layout_.parameters().end(),
                     [](const FlatParameter& p) { return p.parameter->pending_uses() > 0; });
}

// Notes which parameters have a gradient. A parameter without one gets zeros: another rank may have
// one, and absent counts as zero in the average. `more_to_come`: a later backward will contribute
// to these parameters; without it their pending uses are forgotten.
void UnitGradients::note_present(bool more_to_come) {
  Backend& backend = runtime_.backend;
  for (size_t i = 0; i < present_.size(); ++i) {
    Parameter& parameter = *layout_.parameters()[i].parameter;
    parameter.settle_gradient();
    if (parameter.gradient().defined()) {
      present_[i] = 1;
    } else {
      const Tensor memory = memory_of(i);
      backend.fill_zero(backend.compute_stream(), memory.data(), memory.bytes());
    }
    more_to_come ? parameter.leave_gradient() : parameter.clear_gradient();
  }
}

bool UnitGradients::borrow_for_reduce() {
  const bool narrows = policy_.narrows_gradients();
  return !accumulating() || !narrows || borrow();
}

void UnitGradients::reduce(bool last) {
  if (!accumulating()) return;
  allocate_shard();
  note_present(/*more_to_come=*/false);
  run_reduction(last);
}

void UnitGradients::reduce_part() {
  if (!accumulating()) return;
  allocate_shard();
  note_present(/*more_to_come=*/true);
  run_reduction(/*last=*/false);
}

void UnitGradients::run_reduction(bool last) {
  using enum GradientState;
  const Scope scope(runtime_.backend, name_);
  home_.lend_gradient(/*adds=*/state_ != kAccumulating);
  const Shape shape = {layout_.numel()};
  ReductionArgs args = {.unsharded = Tensor(unsharded_, 0, shape, policy_.gradient_dtype),
                        .shard = shard_};
  if (policy_.narrows_gradients()) {
    const auto memory =
        Storage::unbound(runtime_.backend, arena_bytes(), MemoryCategory::kGradient);
    memory->bind(pool_->data(buffer_));
    args.narrow = Tensor(memory, 0, shape, policy_.reduce_dtype);
    args.narrow_free = pool_->free_since(buffer_);
  }
  if (state_ != kAccumulating) {
    args.earlier = policy_.averages_in_place ? set_aside_ : shard_;
    if (state_ == kAddingToReduced) args.earlier_done = reduced_;
  }
  // A unit that was REDUCED holds an average over all ranks. What is added to it must be an average
  // over all ranks too, even where replicas are deferred.
  const bool stays_partial = policy_.at.gradients.pause_across == Placement::kPartial;
  if (stays_partial && !last && state_ != kAddingToReduced) {
    args.reach = Reach::kShardGroup;
  } else if (state_ == kAddingToScattered) {
    args.reach = Reach::kShardGroupThenSum;
  }
  reduced_ = reduction_.run(args);
  if (!shard_in_buffer()) give_buffer_back(reduced_);
  state_ = args.reach == Reach::kShardGroup ? kScattered : kReduced;
  home_.store_gradient(reduced_, last);
  if (shard_in_buffer() && home_.sent()) give_buffer_back(home_.sent());
}

void UnitGradients::hand_to_optimizer() {
  Backend& backend = runtime_.backend;
  if (state_ == GradientState::kNone) {
    // No part of the unit was used: the shard still holds the last step's gradient, if anything.
    if (stored().storage() == shard_.storage()) allocate_shard();
    home_.zero_gradient();
  } else {
    home_.store_late(reduced_);  // more was expected of the last micro-step, but nothing came
  }
  backend.wait(backend.compute_stream(), reduced_);
  if (policy_.releases_memory && !policy_.averages_in_place) release_unsharded();
}

void UnitGradients::hand_over(const ShardHome::Flags& flags) {
  home_.store_late(reduced_);
  // Flags are shared behind a reduction that ends on the reduce stream.
  home_.hand_over(runtime_.mesh.replicas() > 1 ? reduced_ : nullptr, flags);
}

// In the order of the compute stream, which reads what no home has taken.
void UnitGradients::updated() {
  if (!policy_.gives_gradients_back()) return;
  Backend& backend = runtime_.backend;
  if (holds_buffer()) give_buffer_back(backend.record(backend.compute_stream()));
  if (!policy_.averages_in_place) shard_.storage()->drop();
}

void UnitGradients::clear() {
  Backend& backend = runtime_.backend;
  // Left in the middle of a backward: the buffer is free after what was enqueued on it.
  if (holds_buffer()) {
    if (shard_in_buffer()) backend.wait(backend.compute_stream(), reduced_);
    give_buffer_back(backend.record(backend.compute_stream()));
  }
  for (const FlatParameter& p : layout_.parameters()) p.parameter->clear_gradient();
  std::fill(present_.begin(), present_.end(), 0);
  state_ = GradientState::kNone;
  home_.clear_gradient();
  // Of what is given back with the update: left before it.
  const bool releases =
      policy_.releases_memory || (policy_.gives_gradients_back() && shard_.storage()->has_data());
  if (!releases && !set_aside_.defined()) return;
  // What is released here is used again in the order of the compute stream.
  backend.wait(backend.compute_stream(), reduced_);
  set_aside_ = Tensor();
  if (!releases) return;
  release_unsharded();
  if (!policy_.averages_in_place) shard_.storage()->drop();
}

}  // namespace fsdp::comm
