// Filling and gathering of shards, segment by segment.
#include "tools/engine/sharded_values.h"

#include <algorithm>
#include <exception>

#include "core/copy_in_order.h"

namespace fsdp {
namespace {

void for_each_segment(const comm::FullySharded& sharded,
                      const std::function<void(const comm::ParameterSegment&)>& body) {
  for (const auto& unit : sharded.units()) {
    for (const comm::ParameterSegment& segment : unit->parameters.segments()) body(segment);
  }
}

// This rank's part of a flat buffer.
Tensor own_slot(const comm::FullySharded& sharded, const comm::ParameterSegment& segment,
                const Tensor& full) {
  const int64_t count = segment.layout.shard_numel();
  return full.slice(sharded.mesh().shard_index() * count, Shape{count});
}

// The full values behind one shard per rank, in temporary memory. On the compute stream.
Tensor gathered(const comm::FullySharded& sharded, const comm::ParameterSegment& segment,
                const Tensor& shard) {
  Backend& backend = sharded.backend();
  if (sharded.mesh().shards() == 1 && &shard.backend() == &backend) return shard;
  Tensor full = Tensor::empty(backend, Shape{segment.layout.numel()}, shard.dtype(),
                              MemoryCategory::kCommunication);
  const Tensor own = own_slot(sharded, segment, full);
  copy_in_order(backend, shard, own);
  sharded.mesh().scalars().all_gather(backend.compute_stream(), full);
  return full;
}

}  // namespace

namespace {

constexpr int64_t kStretch = int64_t{1} << 20;  // elements of a file that are in memory at a time

// `fill` gives values to elements [first, first + n) of the part. In memory, also for a file.
void fill_shard(comm::FullySharded& sharded, Tensor part,  // (n)
                const std::function<void(int64_t first, Tensor& elements)>& fill) {
  if (part.backend().computes()) return fill(0, part);
  for (int64_t first = 0; first < part.numel(); first += kStretch) {
    const Shape count = {std::min(kStretch, part.numel() - first)};
    Tensor elements = Tensor::zeros(*sharded.options().host, count, part.dtype(),
                                    MemoryCategory::kParameterShard);
    fill(first, elements);
    const Tensor stretch = part.slice(first, count);
    copy_in_order(sharded.backend(), elements, stretch);
  }
}

}  // namespace

void initialise(comm::FullySharded& sharded, const models::FillFunction& fill) {
  sharded.before_masters_are_written();
  for_each_segment(sharded, [&](const comm::ParameterSegment& segment) {
    for (const ShardPiece& piece : segment.layout.pieces(sharded.mesh().shard_index())) {
      const FlatParameter& p = segment.layout.parameters()[static_cast<size_t>(piece.parameter)];
      fill_shard(sharded, segment.master.slice(piece.shard_begin, Shape{piece.count}),
                 [&](int64_t first, Tensor& elements) {
                   fill(*p.parameter, piece.parameter_begin + first, elements);
                 });
    }
  });
  sharded.masters_written();
}

void initialise_from_first_rank(comm::FullySharded& sharded, const models::FillFunction& fill) {
  Backend& backend = sharded.backend();
  comm::Communicator& ranks = sharded.mesh().all_ranks();
  sharded.before_masters_are_written();
  // An error of rank 0 must not leave the others waiting: they get what there is, and the caller's
  // agreement tells them.
  std::exception_ptr error;
  for_each_segment(sharded, [&](const comm::ParameterSegment& segment) {
    Tensor full = Tensor::zeros(backend, Shape{segment.layout.numel()}, segment.master.dtype(),
                                MemoryCategory::kCommunication);
    try {
      for (const FlatParameter& p : segment.layout.parameters()) {
        if (ranks.rank() != 0) break;
        Tensor elements = full.slice(p.offset, Shape{p.numel});
        fill(*p.parameter, 0, elements);
      }
    } catch (...) {
      if (!error) error = std::current_exception();
    }
    ranks.broadcast(backend.compute_stream(), full, 0);
    copy_in_order(backend, own_slot(sharded, segment, full), segment.master);
  });
  sharded.masters_written();
  if (error) std::rethrow_exception(error);
}

void visit_parameters(const comm::FullySharded& sharded, const Visitor& visit,
                      const Wanted& wanted) {
  const auto visited = [&](const FlatParameter& p) { return !wanted || wanted(*p.parameter); };
  for_each_segment(sharded, [&](const comm::ParameterSegment& segment) {
    const std::vector<FlatParameter>& parameters = segment.layout.parameters();
    if (std::none_of(parameters.begin(), parameters.end(), visited)) return;
    const Tensor full = gathered(sharded, segment, segment.master);
    for (const FlatParameter& p : parameters) {
      if (visited(p)) visit(*p.parameter, full.slice(p.offset, p.parameter->shape()));
    }
  });
}

void visit_gradients(const comm::FullySharded& sharded, const Visitor& visit) {
  for (const auto& unit : sharded.units()) {
    if (!unit->gradients) continue;
    const comm::ParameterSegment& segment = *unit->parameters.trainable();
    const Tensor full = gathered(sharded, segment, unit->gradients->stored());
    for (const FlatParameter& p : segment.layout.parameters()) {
      visit(*p.parameter, full.slice(p.offset, p.parameter->shape()));
    }
  }
}

}  // namespace fsdp
