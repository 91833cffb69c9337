// The edges of the gradient state machine; see the drawing in unit_gradients.h.
#include "comm/fsdp/unit_gradients.h"

#include <algorithm>

#include "core/scope.h"

namespace fsdp::comm {
namespace {

// In a fixed order there is one sum over all ranks, whatever the mesh.
GradientDivision division_of(const FsdpRuntime& runtime, const FsdpOptions& o) {
  const Mesh& mesh = runtime.mesh;
  return gradient_division({.reduce_dtype = o.reduce_dtype,
                            .shards = runtime.everyone ? mesh.ranks() : mesh.shards(),
                            .replicas = runtime.everyone ? 1 : mesh.replicas(),
                            .factor = o.divide_factor,
                            .force_sum = o.force_sum,
                            .split = o.split_division});
}

}  // namespace

UnitGradients::UnitGradients(FsdpRuntime& runtime, std::string name, const FsdpOptions& options,
                             const ParameterSegment& segment)
    : runtime_(runtime),
      name_(std::move(name)),
      options_(options),
      segment_(segment),
      division_(division_of(runtime, options)),
      keeps_unsharded_(keeps_gradients(options, runtime.mesh.shards())),
      defer_replicas_(options.accumulation == Accumulation::kReduceScatterEach &&
                      runtime.mesh.replicas() > 1),
      dtype_(options.reduce_dtype),
      present_(segment.layout.parameters().size(), 0) {
  Backend& backend = runtime_.backend;
  const DType master_dtype = segment_.master.dtype();
  if (reduces_last(options)) dtype_ = master_dtype;
  unsharded_ =
      Storage::unbound(backend, static_cast<size_t>(segment_.layout.numel()) * size_of(dtype_),
                       MemoryCategory::kGradient);
  unsharded_->set_label("gradients of unit " + name_);
  // Replicated and reduced once per step: the buffer itself becomes the average.
  const bool one_buffer = runtime_.mesh.shards() == 1 && dtype_ == master_dtype &&
                          options.reduce_dtype == master_dtype &&
                          (options.micro_steps == 1 || reduces_last(options));
  const Shape shape = {segment_.layout.shard_numel()};
  const size_t shard_bytes = static_cast<size_t>(shape[0]) * size_of(master_dtype);
  shard_ = one_buffer ? Tensor(unsharded_, 0, shape, dtype_)
                      : Tensor(Storage::unbound(backend, shard_bytes, MemoryCategory::kGradient), 0,
                               shape, master_dtype);
  if (!options.release_arena) {
    take_own_memory();
    take_shard();
  }
}

void UnitGradients::take_own_memory() {
  if (!keeps_unsharded_ || own_) return;
  own_ = runtime_.mesh.reduce().allocate(runtime_.backend, unsharded_->bytes(),
                                         MemoryCategory::kGradient);
  unsharded_->bind(own_->data());
}

// In the order of the compute stream, for which the streams that reduce wait then.
void UnitGradients::take_shard() {
  if (in_place()) {
    take_own_memory();
  } else {
    shard_.storage()->refill();
  }
}

// The compute stream is behind the last reduce.
void UnitGradients::give_back_own_memory() {
  if (!own_) return;
  unsharded_->unbind();
  own_ = nullptr;
}

size_t UnitGradients::arena_bytes() const {
  const DType reduce_dtype = options_.reduce_dtype;
  if (keeps_unsharded_ && dtype_ == reduce_dtype) return 0;
  return static_cast<size_t>(segment_.layout.numel()) * size_of(reduce_dtype);
}

bool UnitGradients::borrow() {
  if (!lent()) buffer_ = pool_->acquire(preferred_);
  return lent();
}

// Backward writes over the shard now; the reduce adds what was there.
void UnitGradients::set_shard_aside() {
  Backend& backend = runtime_.backend;
  if (!earlier_.defined()) {
    earlier_ = Tensor::empty(backend, shard_.shape(), shard_.dtype(), MemoryCategory::kGradient);
  }
  backend.copy(backend.compute_stream(), earlier_.data(), shard_.data(), shard_.bytes());
}

bool UnitGradients::accumulate() {
  if (state_ == GradientState::kAccumulating) return true;
  Backend& backend = runtime_.backend;
  if (keeps_unsharded_) {
    take_own_memory();
    backend.wait(backend.compute_stream(), reduced_);  // of the micro-step before
    if (shard_filled_ && in_place()) set_shard_aside();
  } else {
    if (!borrow()) return false;
    backend.wait(backend.compute_stream(), pool_->free_since(buffer_));
    unsharded_->bind(pool_->data(buffer_));
  }
  state_ = GradientState::kAccumulating;
  return true;
}

Tensor UnitGradients::memory_of(size_t parameter) const {
  const FlatParameter& p = segment_.layout.parameters().at(parameter);
  return Tensor(unsharded_, p.offset * static_cast<int64_t>(size_of(dtype_)), p.parameter->shape(),
                dtype_);
}

bool UnitGradients::backward_pending() const {
  return std::any_of(segment_.layout.parameters().begin(), segment_.layout.parameters().end(),
                     [](const FlatParameter& p) { return p.parameter->pending_uses() > 0; });
}

// ---------------------------------------------------------------------------- Reduce

// `more_to_come`: from forwards whose backward has not come yet; else such uses are forgotten:
// their backward never comes.
void UnitGradients::note_present(bool more_to_come) {
  Backend& backend = runtime_.backend;
  for (size_t i = 0; i < present_.size(); ++i) {
    const FlatParameter& p = segment_.layout.parameters()[i];
    p.parameter->settle_gradient();
    if (p.parameter->gradient().defined()) {
      present_[i] = 1;
    } else {
      // Other ranks may have one: absent counts as zero in the average.
      const size_t width = size_of(dtype_);
      backend.fill_zero(backend.compute_stream(),
                        unsharded_->data() + static_cast<size_t>(p.offset) * width,
                        static_cast<size_t>(p.numel) * width);
    }
    more_to_come ? p.parameter->leave_gradient() : p.parameter->clear_gradient();
  }
}

void UnitGradients::divide(Stream& stream, Tensor values, double divisor) {
  if (divisor != 1) runtime_.backend.divide(stream, values, divisor);
}

// Parameter by parameter: gaps between them hold anything.
void UnitGradients::find_overflow(const Tensor& gradients) {
  Backend& backend = runtime_.backend;
  const double limit = largest_finite(options_.param_dtype);
  for (const FlatParameter& p : segment_.layout.parameters()) {
    backend.find_overflow(backend.compute_stream(), {.x = gradients.slice(p.offset, Shape{p.numel}),
                                                     .limit = limit,
                                                     .flag = runtime_.overflow});
  }
}

// The unsharded gradients in reduce_dtype, ready on the reduce stream.
Tensor UnitGradients::reduce_input() {
  Backend& backend = runtime_.backend;
  Stream& stream = runtime_.reduce_stream;
  const Shape shape = {segment_.layout.numel()};
  Tensor input(unsharded_, 0, shape, dtype_);
  if (options_.detect_overflow) find_overflow(input);
  backend.wait(stream, backend.record(backend.compute_stream()));
  const DType reduce_dtype = options_.reduce_dtype;
  if (dtype_ != reduce_dtype) {
    backend.wait(stream, pool_->free_since(buffer_));
    auto storage = Storage::unbound(backend, static_cast<size_t>(shape[0]) * size_of(reduce_dtype),
                                    MemoryCategory::kGradient);
    storage->bind(pool_->data(buffer_));
    Tensor narrow(storage, 0, shape, reduce_dtype);
    backend.cast(stream, input, narrow);
    input = narrow;
  }
  divide(stream, input, division_.before);
  return input;
}

// All-reduce of a shard, on a stream of its own: it uses other links than the shard group does.
Stream& UnitGradients::average_across_replicas(Tensor piece) {
  if (runtime_.mesh.replicas() == 1 || runtime_.everyone) return runtime_.reduce_stream;
  Stream& stream = runtime_.replica_stream;
  runtime_.backend.wait(stream, runtime_.backend.record(runtime_.reduce_stream));
  runtime_.mesh.across_replicas().all_reduce(stream, piece, division_.replica_op);
  return stream;
}

// Reduces `input` and stores or adds it to the shard; returns the stream that finishes last.
Stream& UnitGradients::reduce_scattered(Tensor input, bool last_micro_step) {
  Backend& backend = runtime_.backend;
  Stream& reduce_stream = runtime_.reduce_stream;
  const int64_t count = segment_.layout.shard_numel();
  Tensor slot = input.slice(runtime_.mesh.shard_index() * count, Shape{count});
  const bool direct = !shard_filled_ && input.dtype() == shard_.dtype();
  Tensor piece = direct ? shard_ : slot;
  if (runtime_.everyone) {
    // Shard group first, then replicas, would add in another order than one large shard group.
    runtime_.everyone->all_reduce(reduce_stream, input, division_.op);
    if (direct) backend.copy(reduce_stream, piece.data(), slot.data(), piece.bytes());
  } else if (runtime_.mesh.shards() > 1 || piece.data() != slot.data()) {
    runtime_.mesh.reduce().reduce_scatter(reduce_stream, input, piece, division_.op);
  }
  const auto store = [&](Stream& stream) {
    if (shard_filled_) {
      backend.add(stream, shard_, in_place() ? earlier_ : piece, shard_);
    } else if (piece.data() != shard_.data()) {
      backend.cast(stream, piece, shard_);
    }
  };
  if (!defer_replicas_) {
    Stream& last = average_across_replicas(piece);
    divide(last, piece, division_.after);
    store(last);
    return last;
  }
  store(reduce_stream);
  if (!last_micro_step) return reduce_stream;
  if (shard_.dtype() != slot.dtype()) backend.cast(reduce_stream, shard_, slot);
  Tensor total = shard_.dtype() != slot.dtype() ? slot : shard_;
  Stream& last = average_across_replicas(total);
  divide(last, total, division_.after);
  if (total.data() != shard_.data()) backend.cast(last, total, shard_);
  return last;
}

bool UnitGradients::ready_to_reduce() {
  const bool narrows = state_ == GradientState::kAccumulating && dtype_ != options_.reduce_dtype;
  return !narrows || borrow();
}

void UnitGradients::reduce(bool last_micro_step) {
  if (state_ != GradientState::kAccumulating) return;
  take_shard();
  note_present(/*more_to_come=*/false);
  reduce_noted(last_micro_step);
}

void UnitGradients::reduce_part() {
  if (state_ != GradientState::kAccumulating) return;
  take_shard();
  note_present(/*more_to_come=*/true);
  reduce_noted(/*last_micro_step=*/false);
}

void UnitGradients::reduce_noted(bool last_micro_step) {
  Backend& backend = runtime_.backend;
  const Scope scope(backend, name_);
  Stream& last = reduce_scattered(reduce_input(), last_micro_step);
  reduced_ = backend.record(last);
  if (!keeps_unsharded_) unsharded_->unbind();
  if (lent()) pool_->release(buffer_, reduced_);
  buffer_ = BufferPool::kNone;
  shard_filled_ = true;
  replicas_differ_ = defer_replicas_ && !last_micro_step;
  state_ = GradientState::kReduced;
}

void UnitGradients::complete() {
  Backend& backend = runtime_.backend;
  if (state_ == GradientState::kNone) {
    // No part of the unit was used: the shard still holds the last step's gradient, if anything.
    take_shard();
    backend.fill_zero(backend.compute_stream(), shard_.data(), shard_.bytes());
  }
  backend.wait(backend.compute_stream(), reduced_);
  if (runtime_.options.release_arena && !in_place()) give_back_own_memory();
}

void UnitGradients::clear() {
  if (lent()) {
    // Left in the middle of a backward: the buffer is free after what was enqueued on it.
    if (!keeps_unsharded_) unsharded_->unbind();
    pool_->release(buffer_, runtime_.backend.record(runtime_.backend.compute_stream()));
    buffer_ = BufferPool::kNone;
  }
  for (const FlatParameter& p : segment_.layout.parameters()) p.parameter->clear_gradient();
  std::fill(present_.begin(), present_.end(), 0);
  shard_filled_ = false;
  replicas_differ_ = false;
  state_ = GradientState::kNone;
  if (!runtime_.options.release_arena && !earlier_.defined()) return;
  runtime_.backend.wait(runtime_.backend.compute_stream(), reduced_);
  earlier_ = Tensor();
  if (!runtime_.options.release_arena) return;
  give_back_own_memory();
  if (!in_place()) shard_.storage()->drop();
}

}  // namespace fsdp::comm
