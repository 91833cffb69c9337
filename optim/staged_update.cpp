// Contract: optim/staged_update.h.
#include "optim/staged_update.h"

#include <algorithm>

namespace fsdp::optim {
namespace {

// Those of [begin, end) that lie within a part, relative to it.
template <typename Range, typename Cut>
std::vector<Range> within(const std::vector<Range>& ranges, const ShardPart& part, const Cut& cut) {
  std::vector<Range> out;
  for (const Range& range : ranges) {
    Range mine = range;
    mine.begin = std::max(range.begin, part.begin) - part.begin;
    mine.end = std::min(range.end, part.begin + part.count) - part.begin;
    if (mine.begin >= mine.end) continue;
    cut(mine, part.begin + mine.begin - range.begin);
    out.push_back(mine);
  }
  return out;
}

}  // namespace

std::vector<ShardPart> parts_of(const OptimizerShard& shard, int64_t most,
                                const std::vector<std::vector<ParameterRun>>& runs) {
  const std::vector<ShardSegment> segments = shard.layout.segments(shard.index);
  std::vector<ShardPart> parts;
  for (int64_t begin = 0; begin < shard.master.numel(); begin += most) {
    ShardPart part = {.begin = begin,
                      .count = std::min(most, shard.master.numel() - begin),
                      .segments = {},
                      .runs = {}};
    part.segments = within(segments, part, [](ShardSegment&, int64_t) {});
    for (const std::vector<ParameterRun>& of_value : runs) {
      part.runs.push_back(
          within(of_value, part, [](ParameterRun& run, int64_t skipped) { run.first += skipped; }));
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

WideBuffers::WideBuffers(Backend& backend, DType wide, const std::vector<bool>& narrow,
                         int64_t numel) {
  for (const bool has_buffer : narrow) {
    buffers_.push_back(
        has_buffer ? Tensor::zeros(backend, Shape{numel}, wide, MemoryCategory::kOptimizerState)
                   : Tensor());
  }
}

Tensor WideBuffers::widened(size_t value, const Tensor& values) const {
  if (!buffers_[value].defined()) return values;
  Tensor wide = buffers_[value].slice(0, values.shape());
  Backend& backend = wide.backend();
  backend.run(backend.compute_stream(), CastArgs{values, wide});
  return wide;
}

void WideBuffers::narrow(size_t value, const Tensor& wide, Tensor values,
                         const std::vector<ParameterRun>& runs, uint64_t seed,
                         uint32_t number) const {
  if (!buffers_[value].defined()) return;
  Backend& backend = wide.backend();
  if (runs.empty()) return backend.run(backend.compute_stream(), CastArgs{wide, values});
  backend.run(
      backend.compute_stream(),
      StochasticRoundArgs{.x = wide, .out = values, .runs = runs, .seed = seed, .update = number});
}

}  // namespace fsdp::optim
