// The edges of the parameter state machine; see the drawing in unit_parameters.h.
#include "comm/fsdp/unit_parameters.h"

#include <algorithm>

#include "core/scope.h"

namespace fsdp::comm {

// ---------------------------------------------------------------------------- Memory

UnitParameters::UnitParameters(FsdpRuntime& runtime, std::string name,
                               const std::vector<Parameter*>& parameters, const UnitPolicy& policy)
    : runtime_(runtime),
      name_(std::move(name)),
      policy_(policy),
      resident_(policy.resident() || parameters.empty()),  // nothing needs no buffer
      inner_(policy.inner_group > 0 ? &runtime.mesh.inner_gather(policy.inner_group) : nullptr) {
  for (const bool trainable : {true, false}) {
    std::vector<Parameter*> segment;
    for (Parameter* parameter : parameters) {
      if (parameter->trainable() == trainable) segment.push_back(parameter);
    }
    if (!segment.empty()) add_segment(segment, trainable);
  }
  always_unsharded_ =
      runtime_.mesh.shards() == 1 &&
      std::all_of(segments_.begin(), segments_.end(),
                  [](const ParameterSegment& s) { return s.home->optimizer_writes_slot(); });
  if (always_unsharded_) state_ = ParameterState::kUnsharded;
}

ShardSpec UnitParameters::spec_of(const ParameterSegment& s) const {
  const bool rounds = s.trainable && policy_.rounding_seed;
  return {
      .unit = name_,
      .numel = s.layout.shard_numel(),
      .trainable = s.trainable,
      .dtype = policy_.param_dtype,
      .master_dtype = s.trainable ? policy_.master_dtype : policy_.param_dtype,
      .slot = slot(s),
      .resident = resident_,
      .whole = policy_.at.state == Placement::kWhole,
      .rounding_seed = rounds ? policy_.rounding_seed : std::nullopt,
      .runs = rounds ? s.layout.runs(runtime_.mesh.shard_index()) : std::vector<ParameterRun>()};
}

void UnitParameters::add_segment(const std::vector<Parameter*>& parameters, bool trainable) {
  Backend& backend = runtime_.backend;
  const Scope scope(backend, name_);
  const DType dtype = policy_.param_dtype;
  const int shards = runtime_.mesh.shards();
  const int parts = trainable ? policy_.parts_of_shard : 1;
  ParameterSegment s(FlatLayout(parameters, shards, policy_.alignment, parts), trainable);
  const size_t bytes = static_cast<size_t>(s.layout.numel()) * size_of(dtype);
  s.unsharded = Storage::unbound(backend, bytes, MemoryCategory::kUnshardedParameter);
  s.unsharded->set_label("parameters of unit " + name_);
  for (const FlatParameter& p : s.layout.parameters()) {
    const int64_t offset = p.offset * static_cast<int64_t>(size_of(dtype));
    p.parameter->set_value(Tensor(s.unsharded, offset, p.parameter->shape(), dtype));
  }
  s.arena_offset = static_cast<int64_t>(arena_bytes_);
  arena_bytes_ += rounded_bytes(bytes);

  s.home = runtime_.homes.keep(spec_of(s));
  s.master = s.home->stored().master;
  if (resident_) {
    // One slot is the master's when nothing is sharded: then it is no extra memory.
    const auto category = s.master.storage() == s.unsharded && shards == 1
                              ? MemoryCategory::kParameterShard
                              : MemoryCategory::kUnshardedParameter;
    resident_memory_.push_back(runtime_.mesh.gather().allocate(backend, bytes, category));
    s.unsharded->bind(resident_memory_.back()->data());
  }
  if (inner_) {
    s.inner_shard = Tensor::empty(backend, Shape{s.layout.numel() / inner_->size()}, dtype,
                                  MemoryCategory::kUnshardedParameter);
  }
  segments_.push_back(std::move(s));
}

Tensor UnitParameters::flat(const ParameterSegment& s) const {
  return Tensor(s.unsharded, 0, Shape{s.layout.numel()}, policy_.param_dtype);
}

Tensor UnitParameters::slot(const ParameterSegment& s) const {
  const int64_t count = s.layout.shard_numel();
  return flat(s).slice(runtime_.mesh.shard_index() * count, Shape{count});
}

Tensor UnitParameters::inner_slot(const ParameterSegment& s) const {
  const int64_t count = s.layout.numel() / inner_->size();
  return flat(s).slice(inner_->rank() * count, Shape{count});
}

const ParameterSegment* UnitParameters::trainable() const {
  return !segments_.empty() && segments_[0].trainable ? &segments_[0] : nullptr;
}

// ---------------------------------------------------------------------------- Edges

bool UnitParameters::borrow_buffer() {
  buffer_ = pool_->acquire(preferred_);
  if (buffer_ == BufferPool::kNone) return false;
  auto* memory = static_cast<std::byte*>(pool_->data(buffer_));
  for (ParameterSegment& s : segments_) s.unsharded->bind(memory + s.arena_offset);
  return true;
}

bool UnitParameters::unshard() {
  if (has_values()) return true;
  if (!resident_ && !borrow_buffer()) return false;
  const Scope scope(runtime_.backend, name_);
  const EventPtr free = resident_ ? nullptr : pool_->free_since(buffer_);
  for (const ParameterSegment& s : segments_) {
    state_ == ParameterState::kResharded ? gather_inner_shard(s, free) : gather_segment(s, free);
  }
  state_ = ParameterState::kGathering;
  return true;
}

void UnitParameters::gather_segment(const ParameterSegment& s, const EventPtr& free) {
  Stream& stream = runtime_.streams.gather();
  runtime_.backend.wait(stream, s.home->fetch(free));
  gathered_ = runtime_.mesh.gather().all_gather(stream, flat(s));
}

void UnitParameters::gather_inner_shard(const ParameterSegment& s, const EventPtr& free) {
  Backend& backend = runtime_.backend;
  Stream& stream = runtime_.streams.gather();
  backend.wait(stream, free);
  backend.wait(stream, inner_copied_);
  const Tensor own = inner_slot(s);
  backend.copy(stream, own.data(), s.inner_shard.data(), own.bytes());
  gathered_ = inner_->all_gather(stream, flat(s));
}

void UnitParameters::wait_unsharded() {
  FSDP_CHECK(has_values(), "[fsdp] unit {}: waited for without a gather", name_);
  if (state_ == ParameterState::kUnsharded) return;
  runtime_.backend.wait(runtime_.backend.compute_stream(), gathered_);
  state_ = ParameterState::kUnsharded;
}

void UnitParameters::reshard() {
  if (!has_values()) return;
  // A gather that nobody used still has to finish: before its buffer is free, or before the
  // optimizer writes the masters that other ranks read.
  wait_unsharded();
  if (resident_) return;
  for (ParameterSegment& s : segments_) s.unsharded->unbind();
  pool_->release(buffer_, runtime_.backend.record(runtime_.backend.compute_stream()));
  state_ = ParameterState::kSharded;
}

void UnitParameters::reshard_after_forward() {
  if (!inner_ || state_ != ParameterState::kUnsharded) return reshard();
  Backend& backend = runtime_.backend;
  Stream& compute = backend.compute_stream();
  for (ParameterSegment& s : segments_) {
    const Tensor own = inner_slot(s);
    backend.copy(compute, s.inner_shard.data(), own.data(), own.bytes());
  }
  reshard();
  inner_copied_ = backend.record(compute);
  state_ = ParameterState::kResharded;
}

void UnitParameters::expire() {
  const bool stale = state_ == ParameterState::kUnsharded && resident_ && !always_unsharded_;
  if (stale || state_ == ParameterState::kResharded) state_ = ParameterState::kSharded;
}

void UnitParameters::written() {
  for (const ParameterSegment& s : segments_) s.home->written();
  expire();
}

void UnitParameters::forget_events() {
  gathered_ = inner_copied_ = nullptr;
  for (const ParameterSegment& s : segments_) s.home->forget_events();
}

}  // namespace fsdp::comm
