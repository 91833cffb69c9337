// The edges of a unit's two state machines; see the drawing in unit.h.
#include "comm/fsdp/unit.h"

#include <algorithm>

namespace fsdp::comm {
namespace {

// Names what the host enqueues while alive, for traces and errors.
class Scope {
 public:
  Scope(Backend& backend, const std::string& inside) : backend_(backend), before_(backend.scope()) {
    backend_.set_scope(inside);
  }
  ~Scope() { backend_.set_scope(before_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Backend& backend_;
  std::string before_;
};

Tensor flat_tensor(const std::shared_ptr<Storage>& storage, int64_t numel, DType dtype) {
  return Tensor(storage, 0, Shape{numel}, dtype);
}

}  // namespace

Unit::Unit(FsdpRuntime& runtime, PlannedUnit plan, const FlatLayout& layout)
    : runtime_(runtime),
      plan_(std::move(plan)),
      layout_(layout),
      resident_(layout.shards() == 1),
      present_(layout.parameters().size(), 0) {
  Backend& backend = runtime_.backend;
  const FsdpOptions& options = runtime_.options;
  const DType master_dtype = accumulation_dtype(options.param_dtype);
  master_ = Tensor::zeros(backend, Shape{layout_.shard_numel()}, master_dtype,
                          MemoryCategory::kParameterShard);
  unsharded_ = Storage::unbound(backend, unsharded_bytes(), MemoryCategory::kUnshardedParameter);
  unsharded_->set_label("parameters of unit " + plan_.name);
  for (const FlatParameter& p : layout_.parameters()) {
    const int64_t offset = p.offset * static_cast<int64_t>(size_of(options.param_dtype));
    p.parameter->set_value(
        Tensor(unsharded_, offset, p.parameter->shape(), options.param_dtype));
  }
  unsharded_gradient_ =
      Storage::unbound(backend, unsharded_gradient_bytes(), MemoryCategory::kGradient);
  unsharded_gradient_->set_label("gradients of unit " + plan_.name);
  if (resident_) {
    bind_resident();
  } else {
    gradient_ = Tensor::empty(backend, Shape{layout_.shard_numel()}, master_dtype,
                              MemoryCategory::kGradient);
  }
}

void Unit::set_pools(UnitPools pools) { pools_ = pools; }

// [Note: who holds resident values]
// Without sharding the unsharded buffer is the master itself when their dtypes agree, so nothing is
// held twice; otherwise a copy in the compute dtype that the optimizer keeps equal. The gradient
// buffer is the reduced gradient in the same way.
void Unit::bind_resident() {
  Backend& backend = runtime_.backend;
  const FsdpOptions& options = runtime_.options;
  if (options.param_dtype == master_.dtype()) {
    unsharded_->bind(master_.data());
  } else {
    copy_ = Tensor::empty(backend, master_.shape(), options.param_dtype,
                          MemoryCategory::kUnshardedParameter);
    unsharded_->bind(copy_.data());
  }
  parameter_state_ = ParameterState::kUnsharded;
  gradient_memory_ = runtime_.groups.reduce.allocate(backend, unsharded_gradient_bytes(),
                                                     MemoryCategory::kGradient);
  unsharded_gradient_->bind(gradient_memory_->data());
  if (options.reduce_dtype == master_.dtype()) {
    gradient_ = flat_tensor(unsharded_gradient_, layout_.numel(), options.reduce_dtype);
  } else {
    gradient_ =
        Tensor::empty(backend, master_.shape(), master_.dtype(), MemoryCategory::kGradient);
  }
}

size_t Unit::unsharded_bytes() const {
  return static_cast<size_t>(layout_.numel()) * size_of(runtime_.options.param_dtype);
}

size_t Unit::unsharded_gradient_bytes() const {
  return static_cast<size_t>(layout_.numel()) * size_of(runtime_.options.reduce_dtype);
}

Tensor Unit::own_slot(const Tensor& flat) const {
  return flat.slice(shard_index() * layout_.shard_numel(), Shape{layout_.shard_numel()});
}

// ---------------------------------------------------------------------------- Parameters

bool Unit::unshard() {
  if (parameter_state_ != ParameterState::kSharded) return true;
  parameter_buffer_ = pools_.parameters->acquire(pools_.preferred);
  if (parameter_buffer_ == BufferPool::kNone) return false;
  Backend& backend = runtime_.backend;
  Stream& stream = runtime_.gather_stream;
  const Scope scope(backend, name());
  backend.wait(stream, pools_.parameters->free_since(parameter_buffer_));
  backend.wait(stream, runtime_.parameters_updated);
  unsharded_->bind(pools_.parameters->data(parameter_buffer_));
  Tensor flat = flat_tensor(unsharded_, layout_.numel(), runtime_.options.param_dtype);
  Tensor slot = own_slot(flat);
  backend.cast(stream, master_, slot);
  gathered_ = runtime_.groups.gather.all_gather(stream, flat);
  parameter_state_ = ParameterState::kGathering;
  return true;
}

void Unit::wait_unsharded() {
  FSDP_CHECK(parameter_state_ != ParameterState::kSharded,
             "[fsdp] unit {}: needed but not gathered; no arena buffer was free", name());
  if (parameter_state_ == ParameterState::kUnsharded) return;
  runtime_.backend.wait(runtime_.backend.compute_stream(), gathered_);
  parameter_state_ = ParameterState::kUnsharded;
}

void Unit::reshard() {
  if (resident_ || parameter_state_ == ParameterState::kSharded) return;
  wait_unsharded();  // a gather that nobody used still has to finish before its buffer is free
  unsharded_->unbind();
  pools_.parameters->release(parameter_buffer_,
                             runtime_.backend.record(runtime_.backend.compute_stream()));
  parameter_state_ = ParameterState::kSharded;
}

// ---------------------------------------------------------------------------- Gradients

Tensor Unit::gradient_memory(Parameter& parameter) {
  if (gradient_state_ != GradientState::kAccumulating) {
    Backend& backend = runtime_.backend;
    if (!resident_) {
      gradient_buffer_ = pools_.gradients->acquire(pools_.preferred);
      FSDP_CHECK(gradient_buffer_ != BufferPool::kNone,
                 "[fsdp] unit {}: no gradient buffer is free", name());
      backend.wait(backend.compute_stream(), pools_.gradients->free_since(gradient_buffer_));
      unsharded_gradient_->bind(pools_.gradients->data(gradient_buffer_));
    }
    gradient_state_ = GradientState::kAccumulating;
  }
  const auto& parameters = layout_.parameters();
  const auto found = std::find_if(parameters.begin(), parameters.end(), [&](const auto& p) {
    return p.parameter == &parameter;
  });
  FSDP_CHECK(found != parameters.end(), "[fsdp] {}: not a parameter of unit {}", parameter.name(),
             name());
  const DType dtype = runtime_.options.reduce_dtype;
  return Tensor(unsharded_gradient_, found->offset * static_cast<int64_t>(size_of(dtype)),
                parameter.shape(), dtype);
}

bool Unit::backward_pending() const {
  return std::any_of(layout_.parameters().begin(), layout_.parameters().end(),
                     [](const FlatParameter& p) { return p.parameter->pending_uses() > 0; });
}

void Unit::reduce() {
  if (gradient_state_ != GradientState::kAccumulating) return;
  Backend& backend = runtime_.backend;
  Stream& stream = runtime_.reduce_stream;
  Communicator& group = runtime_.groups.reduce;
  const DType dtype = runtime_.options.reduce_dtype;
  for (size_t i = 0; i < present_.size(); ++i) {
    const FlatParameter& p = layout_.parameters()[i];
    const bool has_gradient = p.parameter->gradient().defined();
    present_[i] |= has_gradient ? 1 : 0;
    if (!has_gradient) {
      // Other ranks may have one: absent counts as zero in the average.
      const size_t width = size_of(dtype);
      backend.fill_zero(backend.compute_stream(),
                        unsharded_gradient_->data() + static_cast<size_t>(p.offset) * width,
                        static_cast<size_t>(p.numel) * width);
    }
    p.parameter->clear_gradient();
  }
  const Scope scope(backend, name());
  backend.wait(stream, backend.record(backend.compute_stream()));
  Tensor flat = flat_tensor(unsharded_gradient_, layout_.numel(), dtype);
  if (resident_) {
    group.all_reduce(stream, flat, ReduceOp::kAverage);
    if (dtype != master_.dtype()) backend.cast(stream, flat, gradient_);
  } else {
    const bool direct = !shard_holds_gradient_ && dtype == gradient_.dtype();
    Tensor slot = direct ? gradient_ : own_slot(flat);
    group.reduce_scatter(stream, flat, slot, ReduceOp::kAverage);
    if (shard_holds_gradient_) {
      backend.add(stream, gradient_, slot, gradient_);
    } else if (!direct) {
      backend.cast(stream, slot, gradient_);
    }
    unsharded_gradient_->unbind();
  }
  reduced_ = backend.record(stream);
  if (!resident_) pools_.gradients->release(gradient_buffer_, reduced_);
  shard_holds_gradient_ = true;
  gradient_state_ = GradientState::kReduced;
}

void Unit::clear_gradients() {
  if (gradient_state_ == GradientState::kAccumulating && !resident_) {
    // Abandoned mid-backward: give the buffer back after what was enqueued on it.
    unsharded_gradient_->unbind();
    pools_.gradients->release(gradient_buffer_,
                              runtime_.backend.record(runtime_.backend.compute_stream()));
  }
  for (const FlatParameter& p : layout_.parameters()) p.parameter->clear_gradient();
  std::fill(present_.begin(), present_.end(), 0);
  shard_holds_gradient_ = false;
  gradient_state_ = GradientState::kNone;
}

// ---------------------------------------------------------------------------- Optimizer, saving

void Unit::master_changed() {
  if (copy_.defined()) {
    runtime_.backend.cast(runtime_.backend.compute_stream(), master_, copy_);
  }
}

OptimizerShard Unit::optimizer_shard(const Tensor& present) const {
  return {.name = name(),
          .master = master_,
          .gradient = gradient_,
          .copy = copy_,
          .present = present,
          .segments = layout_.segments(shard_index()),
          .spans = layout_.spans(shard_index()),
          .parameters = static_cast<int64_t>(layout_.parameters().size())};
}

Tensor Unit::gather_full(bool gradients) {
  const Tensor& shard = gradients ? gradient_ : master_;
  if (resident_) return shard;
  Backend& backend = runtime_.backend;
  Tensor full = Tensor::empty(backend, Shape{layout_.numel()}, shard.dtype(),
                              MemoryCategory::kCommunication);
  Stream& compute = backend.compute_stream();
  backend.copy(compute, own_slot(full).data(), shard.data(), shard.bytes());
  backend.wait(runtime_.gather_stream, backend.record(compute));
  backend.wait(compute, runtime_.groups.gather.all_gather(runtime_.gather_stream, full));
  return full;
}

}  // namespace fsdp::comm
