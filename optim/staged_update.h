// Masters and moments that keep only 16 bits between two steps. The step is that of the
// accumulation dtype all the same: a part of a shard is widened into buffers, stepped there by the
// kernel that steps wide values where they lie, and rounded back. The buffers are small; on a CPU
// and on a GPU they stay in caches.
//
// What is rounded to bf16 by chance is drawn by seed, number of the step, parameter, element, and
// which value of the element it is: no sharding changes it, and a step that is computed again has
// the same bits. What bf16 holds exactly stays: a parameter that stands still does not move. Not
// here: the order of a step (optim/optimizer.h); the rounding (core/kernel_args.h,
// StochasticRoundArgs).
#pragma once

#include <vector>

#include "core/flat_layout.h"

namespace fsdp::optim {

// Elements [begin, begin + count) of a shard, which are stepped at once.
struct ShardPart {
  int64_t begin = 0;
  int64_t count = 0;
  std::vector<ShardSegment> segments;           // relative to begin
  std::vector<std::vector<ParameterRun>> runs;  // the same, by value: master, then state
};
// Cuts a shard into parts of at most `most` elements. `runs`: of the shard, by value; empty for
// values that are not rounded by chance.
std::vector<ShardPart> parts_of(const OptimizerShard& shard, int64_t most,
                                const std::vector<std::vector<ParameterRun>>& runs);

// One buffer for each value that is narrow.
class WideBuffers {
 public:
  static constexpr int64_t kMostElements = int64_t{1} << 20;

  // `narrow`: by value, whether it has a buffer. `numel`: elements of the largest part.
  WideBuffers(Backend& backend, DType wide, const std::vector<bool>& narrow, int64_t numel);

  // The values of a part, in the wide dtype: `values` itself where they are, else a copy in the
  // buffer.
  Tensor widened(size_t value, const Tensor& values) const;
  // Rounds the copy back. `runs`: by chance within them, else to nearest.
  void narrow(size_t value, const Tensor& wide, Tensor values,
              const std::vector<ParameterRun>& runs, uint64_t seed, uint32_t number) const;

 private:
  std::vector<Tensor> buffers_;  // by value; undefined where it is wide
};

}  // namespace fsdp::optim
