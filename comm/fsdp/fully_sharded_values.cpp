// Values in and out of the shards: initial ones, and full ones for saving and checking. One unit at
// a time: no rank ever holds the model.
#include <algorithm>

#include "comm/fsdp/fully_sharded.h"

namespace fsdp::comm {

void FullySharded::fill_own_part(ParameterSegment& segment, const FillFunction& fill) {
  for (const ShardPiece& piece : segment.layout.pieces(mesh_->shard_index())) {
    const Parameter& parameter =
        *segment.layout.parameters()[static_cast<size_t>(piece.parameter)].parameter;
    Tensor elements = segment.master.slice(piece.shard_begin, Shape{piece.count});
    fill(parameter, piece.parameter_begin, elements);
  }
}

void FullySharded::receive_own_part(ParameterSegment& segment, const FillFunction& fill) {
  Stream& stream = backend().compute_stream();
  Tensor full = Tensor::zeros(backend(), Shape{segment.layout.numel()}, segment.master.dtype(),
                              MemoryCategory::kCommunication);
  // An error of rank 0 must not leave the others waiting: they get what there is, and the caller's
  // agreement tells them.
  std::exception_ptr error;
  if (world_->rank() == 0) {
    try {
      for (const FlatParameter& p : segment.layout.parameters()) {
        Tensor elements = full.slice(p.offset, Shape{p.numel});
        fill(*p.parameter, 0, elements);
      }
    } catch (...) {
      error = std::current_exception();
    }
  }
  world_->broadcast(stream, full, 0);
  if (error && !fill_error_) fill_error_ = error;
  const int64_t count = segment.layout.shard_numel();
  const Tensor own = full.slice(mesh_->shard_index() * count, Shape{count});
  backend().copy(stream, segment.master.data(), own.data(), own.bytes());
}

void FullySharded::fill_segments(const SegmentFill& fill) {
  for (const auto& unit : units_) {
    for (ParameterSegment& segment : unit->parameters.segments()) fill(segment);
    unit->parameters.master_changed();
    unit->parameters.mark_updated();
  }
  runtime_.parameters_updated = backend().record(backend().compute_stream());
}

void FullySharded::initialise(const FillFunction& fill) {
  fill_segments([&](ParameterSegment& segment) { fill_own_part(segment, fill); });
}

void FullySharded::initialise_from_first_rank(const FillFunction& fill) {
  fill_error_ = nullptr;
  fill_segments([&](ParameterSegment& segment) { receive_own_part(segment, fill); });
  if (fill_error_) std::rethrow_exception(fill_error_);
}

void FullySharded::visit_parameters(const Visitor& visit, const Wanted& wanted) {
  const auto visited = [&](const FlatParameter& p) { return !wanted || wanted(*p.parameter); };
  for (const auto& unit : units_) {
    for (const ParameterSegment& segment : unit->parameters.segments()) {
      const std::vector<FlatParameter>& parameters = segment.layout.parameters();
      if (std::none_of(parameters.begin(), parameters.end(), visited)) continue;
      const Tensor full = unit->parameters.gather_shards(segment, segment.master);
      for (const FlatParameter& p : parameters) {
        if (visited(p)) visit(*p.parameter, full.slice(p.offset, p.parameter->shape()));
      }
    }
  }
}

void FullySharded::visit_gradients(const Visitor& visit) {
  for (const auto& unit : units_) {
    if (!unit->gradients) continue;
    const ParameterSegment& segment = *unit->parameters.trainable();
    const Tensor full = unit->parameters.gather_shards(segment, unit->gradients->shard());
    for (const FlatParameter& p : segment.layout.parameters()) {
      visit(*p.parameter, full.slice(p.offset, p.parameter->shape()));
    }
  }
}

}  // namespace fsdp::comm
