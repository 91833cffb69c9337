// The edges of the parameter state machine; see the drawing in unit_parameters.h.
#include "comm/fsdp/unit_parameters.h"

#include "core/scope.h"
#include "core/rng.h"

namespace fsdp::comm {

namespace {

std::vector<ParameterRun> runs_of(const FlatLayout& layout, int shard) {
  std::vector<ParameterRun> runs;
  for (const ShardPiece& piece : layout.pieces(shard)) {
    const FlatParameter& p = layout.parameters()[static_cast<size_t>(piece.parameter)];
    runs.push_back({.begin = piece.shard_begin,
                    .end = piece.shard_begin + piece.count,
                    .name_hash = hash_name(p.parameter->name()),
                    .first = piece.parameter_begin});
  }
  return runs;
}

}  // namespace

UnitParameters::UnitParameters(FsdpRuntime& runtime, std::string name,
                               const std::vector<Parameter*>& parameters,
                               const FsdpOptions& options, Communicator* inner)
    : runtime_(runtime),
      name_(std::move(name)),
      options_(options),
      resident_(parameters.empty() ||  // nothing needs no buffer
                resident_parameters(options, runtime.mesh.shards())),
      inner_(inner) {
  for (const bool trainable : {true, false}) {
    std::vector<Parameter*> segment;
    for (Parameter* parameter : parameters) {
      if (parameter->trainable() == trainable) segment.push_back(parameter);
    }
    if (!segment.empty()) add_segment(segment, trainable);
  }
  if (resident_ && runtime_.mesh.shards() == 1) state_ = ParameterState::kUnsharded;
}

void UnitParameters::add_segment(const std::vector<Parameter*>& parameters, bool trainable) {
  Backend& backend = runtime_.backend;
  const DType dtype = options_.param_dtype;
  const int64_t alignment = options_.fixed_order ? kNormBlock : kFlatAlignment;
  ParameterSegment s(FlatLayout(parameters, runtime_.mesh.shards(), alignment), trainable);
  const size_t bytes = static_cast<size_t>(s.layout.numel()) * size_of(dtype);
  s.unsharded = Storage::unbound(backend, bytes, MemoryCategory::kUnshardedParameter);
  s.unsharded->set_label("parameters of unit " + name_);
  for (const FlatParameter& p : s.layout.parameters()) {
    const int64_t offset = p.offset * static_cast<int64_t>(size_of(dtype));
    p.parameter->set_value(Tensor(s.unsharded, offset, p.parameter->shape(), dtype));
  }
  s.arena_offset = static_cast<int64_t>(arena_bytes_);
  arena_bytes_ += rounded_bytes(bytes);

  const DType master_dtype = trainable ? accumulation_dtype(dtype) : dtype;
  const bool slice = resident_ && master_dtype == dtype;
  if (resident_) {
    // One slot is the master's when nothing is sharded: then it is no extra memory.
    const auto category = slice && runtime_.mesh.shards() == 1
                              ? MemoryCategory::kParameterShard
                              : MemoryCategory::kUnshardedParameter;
    resident_memory_.push_back(runtime_.mesh.gather().allocate(backend, bytes, category));
    s.unsharded->bind(resident_memory_.back()->data());
    if (slice) {
      s.master = slot(s, flat(s));
    } else if (runtime_.mesh.shards() == 1) {
      s.copy = slot(s, flat(s));
    }
  }
  if (!slice) {
    s.master = Tensor::zeros(backend, Shape{s.layout.shard_numel()}, master_dtype,
                             MemoryCategory::kParameterShard);
  }
  if (trainable && rounds_by_chance()) s.runs = runs_of(s.layout, runtime_.mesh.shard_index());
  if (inner_) {
    s.inner_shard = Tensor::empty(backend, Shape{s.layout.numel() / inner_->size()}, dtype,
                                  MemoryCategory::kUnshardedParameter);
  }
  segments_.push_back(std::move(s));
}

Tensor UnitParameters::flat(const ParameterSegment& s) const {
  return Tensor(s.unsharded, 0, Shape{s.layout.numel()}, options_.param_dtype);
}

Tensor UnitParameters::slot(const ParameterSegment& s, const Tensor& flat) const {
  return flat.slice(runtime_.mesh.shard_index() * s.layout.shard_numel(),
                    Shape{s.layout.shard_numel()});
}

bool UnitParameters::unshard() {
  if (state_ != ParameterState::kSharded) return true;
  Backend& backend = runtime_.backend;
  Stream& stream = runtime_.gather_stream;
  if (!resident_) {
    buffer_ = pool_->acquire(preferred_);
    if (buffer_ == BufferPool::kNone) return false;
    backend.wait(stream, pool_->free_since(buffer_));
    auto* memory = static_cast<std::byte*>(pool_->data(buffer_));
    for (ParameterSegment& s : segments_) s.unsharded->bind(memory + s.arena_offset);
  }
  const Scope scope(backend, name_);
  backend.wait(stream, inner_kept_ ? inner_kept_ : runtime_.parameters_updated);
  for (ParameterSegment& s : segments_) gather_segment(s);
  inner_kept_ = nullptr;
  state_ = ParameterState::kGathering;
  return true;
}

void UnitParameters::gather_segment(ParameterSegment& s) {
  Backend& backend = runtime_.backend;
  Stream& stream = runtime_.gather_stream;
  const Tensor all = flat(s);
  if (inner_kept_) {
    const Shape part = s.inner_shard.shape();
    const Tensor own = all.slice(inner_->rank() * part[0], part);
    backend.copy(stream, own.data(), s.inner_shard.data(), own.bytes());
    gathered_ = inner_->all_gather(stream, all);
    return;
  }
  Tensor own = slot(s, all);
  if (own.data() != s.master.data()) narrow(stream, s, own);
  gathered_ = runtime_.mesh.gather().all_gather(stream, all);
}

void UnitParameters::wait_unsharded() {
  FSDP_CHECK(state_ != ParameterState::kSharded,
             "[fsdp] unit {}: needed beside others that are in use, but no buffer of the arena is "
             "free: units_in_flight: expected more than {}",
             name_, runtime_.options.units_in_flight);
  if (state_ == ParameterState::kUnsharded) return;
  runtime_.backend.wait(runtime_.backend.compute_stream(), gathered_);
  state_ = ParameterState::kUnsharded;
}

void UnitParameters::reshard() {
  if (state_ == ParameterState::kSharded) return;
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
    const Shape part = s.inner_shard.shape();
    const Tensor own = flat(s).slice(inner_->rank() * part[0], part);
    backend.copy(compute, s.inner_shard.data(), own.data(), own.bytes());
  }
  reshard();
  inner_kept_ = backend.record(compute);
}

void UnitParameters::mark_updated() {
  inner_kept_ = nullptr;
  if (!resident_ || runtime_.mesh.shards() == 1 || state_ == ParameterState::kSharded) return;
  state_ = ParameterState::kSharded;
}

const ParameterSegment* UnitParameters::trainable() const {
  return !segments_.empty() && segments_[0].trainable ? &segments_[0] : nullptr;
}

void UnitParameters::master_changed() {
  for (ParameterSegment& s : segments_) {
    if (s.copy.defined()) narrow(runtime_.backend.compute_stream(), s, s.copy);
  }
}

bool UnitParameters::rounds_by_chance() const {
  return options_.rounding_seed && options_.param_dtype == DType::kBF16;
}

// The master in the compute dtype. A shard that is only padding has no runs.
void UnitParameters::narrow(Stream& stream, const ParameterSegment& s, Tensor& out) {
  if (!s.trainable || !rounds_by_chance()) return runtime_.backend.cast(stream, s.master, out);
  runtime_.backend.round_stochastically(stream, {.x = s.master,
                                                 .out = out,
                                                 .runs = s.runs,
                                                 .seed = *options_.rounding_seed,
                                                 .update = runtime_.updates});
}

Tensor UnitParameters::gather_shards(const ParameterSegment& segment, const Tensor& shard) {
  if (runtime_.mesh.shards() == 1) return shard;
  Backend& backend = runtime_.backend;
  Stream& compute = backend.compute_stream();
  Tensor full = Tensor::empty(backend, Shape{segment.layout.numel()}, shard.dtype(),
                              MemoryCategory::kCommunication);
  const Tensor own = slot(segment, full);
  backend.copy(compute, own.data(), shard.data(), own.bytes());
  backend.wait(runtime_.gather_stream, backend.record(compute));
  backend.wait(compute, runtime_.mesh.gather().all_gather(runtime_.gather_stream, full));
  return full;
}

}  // namespace fsdp::comm
