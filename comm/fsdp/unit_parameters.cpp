// The edges of the parameter state machine; see the drawing in unit_parameters.h.
#include "comm/fsdp/unit_parameters.h"

#include "comm/fsdp/file_transfers.h"
#include "core/scope.h"

namespace fsdp::comm {

// ---------------------------------------------------------------------------- Memory

UnitParameters::UnitParameters(FsdpRuntime& runtime, std::string name,
                               const std::vector<Parameter*>& parameters, const UnitPolicy& policy)
    : runtime_(runtime),
      name_(std::move(name)),
      policy_(policy),
      resident_(policy.resident || parameters.empty()),  // nothing needs no buffer
      inner_(policy.inner_group > 0 ? &runtime.mesh.inner_gather(policy.inner_group) : nullptr) {
  for (const bool trainable : {true, false}) {
    std::vector<Parameter*> segment;
    for (Parameter* parameter : parameters) {
      if (parameter->trainable() == trainable) segment.push_back(parameter);
    }
    if (!segment.empty()) add_segment(segment, trainable);
  }
  if (always_unsharded()) state_ = ParameterState::kUnsharded;
}

// One rank has all values, and the optimizer writes them.
bool UnitParameters::always_unsharded() const {
  return resident_ && runtime_.mesh.shards() == 1 && !is_offloaded();
}

// Else once after an update, into memory that keeps the values. (Resident values are gathered once
// after an update, too. From a file they come then: the next forward does not wait for others.)
bool UnitParameters::fetched_by_gather() const {
  return policy_.offload == Offload::kNvme || (policy_.offload == Offload::kAll && !resident_);
}

void UnitParameters::add_in_file(ParameterSegment& s, DType master_dtype) {
  constexpr auto kCategory = MemoryCategory::kParameterShard;
  const DType dtype = policy_.param_dtype;
  const Shape shape = {s.layout.shard_numel()};
  if (!s.trainable) {
    s.master = file_tensor(*runtime_.file, shape, dtype, kCategory);
  } else {
    s.paged = std::make_unique<PagedTensors>(*runtime_.pages);
    const auto [home, here] = s.paged->add(shape, master_dtype, kCategory);
    s.master = home;
    s.master_here = here;
  }
  if (master_dtype != dtype) {
    const auto [home, here] = s.paged->add(shape, dtype, kCategory);
    s.narrow_master = home;
    s.narrow_here = here;
  }
  runtime_.transfers->expect_loads(
      paged_bytes(s.narrow_master.defined() ? s.narrow_master : s.master));
}

void UnitParameters::add_segment(const std::vector<Parameter*>& parameters, bool trainable) {
  Backend& backend = runtime_.backend;
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

  const DType master_dtype = trainable ? policy_.master_dtype : dtype;
  s.on_host = trainable ? is_offloaded() : offloads_all(policy_.offload);
  const bool slice = resident_ && master_dtype == dtype && !s.on_host;
  if (resident_) {
    // One slot is the master's when nothing is sharded: then it is no extra memory.
    const auto category = slice && shards == 1 ? MemoryCategory::kParameterShard
                                               : MemoryCategory::kUnshardedParameter;
    resident_memory_.push_back(runtime_.mesh.gather().allocate(backend, bytes, category));
    s.unsharded->bind(resident_memory_.back()->data());
  }
  const auto shard_on = [&](Backend& place, DType shard_dtype) {
    return Tensor::zeros(place, Shape{s.layout.shard_numel()}, shard_dtype,
                         MemoryCategory::kParameterShard);
  };
  if (s.on_host && runtime_.file) {
    add_in_file(s, master_dtype);
  } else {
    s.master = slice ? slot(s) : shard_on(s.on_host ? *runtime_.host : backend, master_dtype);
  }
  if (s.on_host && !runtime_.file && master_dtype != dtype) {
    s.narrow_master = shard_on(*runtime_.host, dtype);
  } else if (always_unsharded() && !slice) {
    s.narrow_master = slot(s);
  }
  if (s.on_host && !resident_ && !fetched_by_gather()) s.device_shard = shard_on(backend, dtype);
  if (trainable && policy_.rounding_seed) s.runs = s.layout.runs(runtime_.mesh.shard_index());
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

bool UnitParameters::unshard() {
  if (has_values()) return true;
  Backend& backend = runtime_.backend;
  Stream& stream = runtime_.streams.gather();
  const bool inner = state_ == ParameterState::kResharded;
  const bool fetches = fetched_by_gather() && !inner;
  EventPtr free;
  if (!resident_) {
    buffer_ = pool_->acquire(preferred_);
    if (buffer_ == BufferPool::kNone) return false;
    free = pool_->free_since(buffer_);
    if (!fetches) backend.wait(stream, free);
    auto* memory = static_cast<std::byte*>(pool_->data(buffer_));
    for (ParameterSegment& s : segments_) s.unsharded->bind(memory + s.arena_offset);
  }
  const Scope scope(backend, name_);
  const bool keeps_frozen = resident_ && fetched_;
  if (fetches) fetch(keeps_frozen ? Fetched::kTrainable : Fetched::kEverything, free);
  const EventPtr& written = is_offloaded() ? fetched_ : runtime_.parameters_updated;
  backend.wait(stream, inner ? inner_copied_ : written);
  for (const ParameterSegment& s : segments_) gather_segment(s);
  state_ = ParameterState::kGathering;
  return true;
}

void UnitParameters::gather_segment(const ParameterSegment& s) {
  Stream& stream = runtime_.streams.gather();
  if (state_ == ParameterState::kResharded) {
    const Tensor own = inner_slot(s);
    runtime_.backend.copy(stream, own.data(), s.inner_shard.data(), own.bytes());
    gathered_ = inner_->all_gather(stream, flat(s));
    return;
  }
  const Tensor own = slot(s);
  if (s.device_shard.defined()) {
    runtime_.backend.copy(stream, own.data(), s.device_shard.data(), own.bytes());
  } else if (!s.on_host && own.data() != s.master.data()) {
    narrow(stream, s, own, runtime_.updates);
  }
  gathered_ = runtime_.mesh.gather().all_gather(stream, flat(s));
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
  const bool stale = state_ == ParameterState::kUnsharded && resident_ && !always_unsharded();
  if (stale || state_ == ParameterState::kResharded) state_ = ParameterState::kSharded;
}

// ---------------------------------------------------------------------------- On the host

void UnitParameters::updated_on_host(uint32_t update) {
  for (const ParameterSegment& s : segments_) {
    if (policy_.rounding_seed) narrow_on_its_backend(s, update);
  }
  if (runtime_.file) return;  // PagedTensors::written says it
  updated_ = runtime_.host->record(runtime_.host->compute_stream());
  if (!fetched_by_gather()) fetch(Fetched::kTrainable, nullptr);
}

void UnitParameters::written_on_host() {
  Backend& backend = runtime_.backend;
  Backend& place = runtime_.file ? *runtime_.file : *runtime_.host;
  updated_ = place.record(place.compute_stream());
  fetched_ = nullptr;
  // The event of the copy stands for what the device's compute stream wrote, too: frozen shards.
  // And units that are still gathered have been waited for by it.
  if (!fetched_by_gather()) fetch(Fetched::kEverything, backend.record(backend.compute_stream()));
}

// Where the gather looks for it: into the device's shard, or this rank's slot. Nobody reads the
// old values there: the host has updated the unit after the end of the backward, which waited for
// all gathers.
void UnitParameters::fetch(Fetched what, const EventPtr& free) {
  Backend& backend = runtime_.backend;
  Stream& stream = runtime_.streams.from_host();
  const Scope scope(backend, name_);
  if (!runtime_.file) {
    backend.wait(stream, free);
    backend.wait(stream, updated_);
  }
  for (const ParameterSegment& s : segments_) {
    if (!s.on_host || (what == Fetched::kTrainable && !s.trainable)) continue;
    if (runtime_.file) {
      fetch_from_file(s, free);
      continue;
    }
    const Tensor& from = s.narrow_master.defined() ? s.narrow_master : s.master;
    const Tensor to = s.device_shard.defined() ? s.device_shard : slot(s);
    backend.copy(stream, to.data(), from.data(), to.bytes());
  }
  fetched_ = backend.record(stream);
}

// What somebody else wrote is waited for once: the stream runs in order.
void UnitParameters::fetch_from_file(const ParameterSegment& s, const EventPtr& free) {
  runtime_.file->wait(runtime_.streams.from_file(), updated_);
  updated_ = nullptr;
  const Tensor& from = s.narrow_master.defined() ? s.narrow_master : s.master;
  runtime_.transfers->load(from, slot(s), s.paged ? s.paged->written() : nullptr, free);
}

// ---------------------------------------------------------------------------- Dtypes

void UnitParameters::refresh_narrow_master(uint32_t update) {
  for (const ParameterSegment& s : segments_) {
    if (!s.narrow_master.defined()) continue;
    if (s.paged) s.paged->bring_in(PagedTensors::What::kAll);
    narrow_on_its_backend(s, update);
    if (s.paged) s.paged->give_back();
  }
}

void UnitParameters::narrow_on_its_backend(const ParameterSegment& s, uint32_t update) {
  if (!s.narrow_master.defined()) return;
  narrow(s.updated_master().backend().compute_stream(), s, s.updated_narrow(), update);
}

// The master in the compute dtype. A shard that is only padding has no runs.
void UnitParameters::narrow(Stream& stream, const ParameterSegment& s, Tensor out,
                            uint32_t update) {
  const Tensor& master = s.updated_master();
  Backend& backend = master.backend();
  if (!s.trainable || !policy_.rounding_seed) return backend.run(stream, CastArgs{master, out});
  backend.run(stream, StochasticRoundArgs{.x = master,
                                          .out = out,
                                          .runs = s.runs,
                                          .seed = *policy_.rounding_seed,
                                          .update = update});
}

}  // namespace fsdp::comm
