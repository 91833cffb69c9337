// The sizes of attention's tiles, and the scratch memory that a thread takes for them. What the
// tiles are for: attention_tile.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/layer_args.h"
#include "core/tensor.h"

namespace fsdp::cpu {

constexpr int64_t kLanes = 32;       // queries of a block, columns of a panel
constexpr int64_t kTileKeys = 64;    // rows of a tile of scores
constexpr int64_t kChunkBlocks = 4;  // blocks of a task of forward
constexpr int64_t kChunkQueries = kChunkBlocks * kLanes;

constexpr int64_t panels_of(int64_t columns) { return (columns + kLanes - 1) / kLanes; }

struct AttentionExtents {
  int64_t batch, heads, kv_heads, queries, keys, head_dim;

  explicit AttentionExtents(const AttentionArgs& args)
      : batch(args.q.tensor->shape()[0]),
        heads(args.q.heads),
        kv_heads(args.k.heads),
        queries(args.q.tensor->shape()[1]),
        keys(args.keys > 0 ? args.keys : args.k.tensor->shape()[1]),
        head_dim(args.q.head_dim) {}

  int64_t chunks() const { return (queries + kChunkQueries - 1) / kChunkQueries; }
};

// Of one thread, elements of the accumulation dtype.
inline size_t forward_scratch_elements(int64_t head_dim) {
  const int64_t padded = panels_of(head_dim) * kLanes;
  return static_cast<size_t>(2 * padded * kTileKeys + 2 * kTileKeys * kLanes + padded * kLanes +
                             2 * padded * kChunkQueries);
}
inline size_t backward_scratch_elements(int64_t head_dim, int64_t keys) {
  const int64_t padded = panels_of(head_dim) * kLanes;
  return static_cast<size_t>(4 * padded * keys + 5 * padded * kLanes + 3 * kTileKeys * kLanes);
}

}  // namespace fsdp::cpu
