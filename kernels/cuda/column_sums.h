// Sums over rows, of what is in memory and of what a kernel makes row by row: gradients of biases
// and of the weights of norms. Partial sums of chunks of rows come first, then those are added in
// order. No atomics: the same bits every time.
#pragma once

#include <initializer_list>

#include "kernels/cuda/elements.h"
#include "kernels/cuda/op.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/workspace.h"

namespace fsdp::cuda {

struct ColumnSums {
  const Tensor* out;        // (columns), any floating dtype; null: not wanted
  int64_t first;            // of its columns in a row of partials
  bool accumulate = false;  // out += instead of =
};
// What is wanted of `sums`, one or two of equally many columns, becomes the sum of `rows` rows of
// partials, `stride` floats apart, in one launch. A launch after the one that wrote them: were it
// the last block there that adds them up, one multiprocessor would have all of this work.
void add_partials(const Op& op, const float* partials, int64_t rows, int64_t stride,
                  std::initializer_list<ColumnSums> sums);

constexpr int kSumWarps = 8;
constexpr int kSumThreads = kSumWarps * kWarpSize;

// mapping: grid x takes 32 V columns, grid y a chunk of rows; a warp per row, in turn
// bytes:   those of the rows, once
// in f32:  the sums
// source:  core/layer_args.h, SumRowsArgs
template <int V, typename Rows>
__global__ void __launch_bounds__(kSumThreads)
    sum_chunks(Rows made, float* partials, int64_t rows, int64_t columns, int64_t chunk_rows) {
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWarpSize * V;
  const int64_t column = first + lane * V;
  const int64_t begin = blockIdx.y * chunk_rows;
  const int64_t end = begin + chunk_rows < rows ? begin + chunk_rows : rows;
  float sums[V] = {};
  if (column + V <= columns) {
#pragma unroll 4
    for (int64_t row = begin + warp; row < end; row += kSumWarps) {
      float values[V];
      made.template values<V>(row, column, values);
#pragma unroll
      for (int j = 0; j < V; ++j) sums[j] += values[j];
    }
  } else if (column < columns) {
    for (int64_t row = begin + warp; row < end; row += kSumWarps) {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        float value[1];
        if (column + j >= columns) continue;
        made.template values<1>(row, column + j, value);
        sums[j] += value[0];
      }
    }
  }
  FSDP_SHARED(tile, float[kSumWarps][kWarpSize * V]);
#pragma unroll
  for (int j = 0; j < V; ++j) tile[warp][lane * V + j] = sums[j];
  __syncthreads();
  for (int j = threadIdx.x; j < kWarpSize * V && first + j < columns; j += kSumThreads) {
    float total = tile[0][j];
#pragma unroll
    for (int from = 1; from < kSumWarps; ++from) total += tile[from][j];
    partials[blockIdx.y * columns + first + j] = total;
  }
}

// out (columns) [+]= the sums over rows of what made.values<V>(row, column, floats) gives: each
// element is asked for once, in runs of V, or of 1 where they are not `aligned`.
template <int V, typename Rows>
void sum_columns(const Op& op, const Rows& made, int64_t rows, bool aligned, const Tensor& out,
                 bool accumulate) {
  constexpr int64_t kLeastRows = 8 * kSumWarps, kBlocksPerMultiprocessor = 8;
  const int64_t columns = out.numel();
  if (columns == 0) return;
  const int64_t across = blocks_for(columns, kWarpSize * (aligned ? V : 1));
  const int64_t wanted = blocks_for(kBlocksPerMultiprocessor * op.device().multiprocessors, across);
  const int64_t chunk_rows = std::max(kLeastRows, blocks_for(rows, wanted));
  const int64_t chunks = blocks_for(rows, chunk_rows);
  const Workspace<float> partials(op, chunks * columns);
  launch(aligned ? sum_chunks<V, Rows> : sum_chunks<1, Rows>, Grid(across, chunks), kSumThreads, 0,
         op, made, partials.data(), rows, columns, chunk_rows);
  add_partials(op, partials.data(), chunks, columns, {{&out, 0, accumulate}});
}

}  // namespace fsdp::cuda
