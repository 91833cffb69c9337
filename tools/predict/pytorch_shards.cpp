// PyTorch 2.13: FlatParamHandle._init_flat_param_and_metadata, FSDPParam._init_sharded_param.
#include "tools/predict/pytorch_shards.h"

#include <algorithm>

namespace fsdp::tools {
namespace {

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace

int64_t fsdp1_shard(const std::vector<Shape>& parameters, int ranks) {
  int64_t total = 0;
  for (const Shape& shape : parameters) total += shape.numel();
  return divide_up(total, ranks);
}

int64_t fsdp1_original_shard(const std::vector<Shape>& parameters, int ranks,
                             int64_t element_bytes) {
  const int64_t alignment = 16 / element_bytes;
  int64_t end = 0;
  for (const Shape& shape : parameters) {
    end = divide_up(end, alignment) * alignment + shape.numel();
  }
  return divide_up(end, ranks);
}

Fsdp2Shards fsdp2_shards(const std::vector<Shape>& parameters, int ranks) {
  Fsdp2Shards shards;
  shards.held.assign(static_cast<size_t>(ranks), 0);
  for (const Shape& shape : parameters) {
    const int64_t rows = shape[0], row = shape.numel() / rows;
    const int64_t rows_per_rank = divide_up(rows, ranks);
    shards.padded += rows_per_rank * row;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t left = std::max<int64_t>(rows - rank * rows_per_rank, 0);
      shards.held[static_cast<size_t>(rank)] += std::min(left, rows_per_rank) * row;
    }
  }
  return shards;
}

}  // namespace fsdp::tools
