// Tiles of attention in shared memory and how a block multiplies them. A block owns 64 rows (of
// queries, or of keys) and streams tiles of the other side past them; each thread holds a fragment
// of the scores (64, kCols) and of the result (64, kDim). Two ways with one interface: TensorCores
// for 16-bit types, PlainMultiply for f32. Which rows of a model these are: attention_problem.h.
#pragma once

#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"

namespace fsdp::cuda {

constexpr int kAttentionThreads = 128;
constexpr int kOwnRows = 64;

// (rows, kDim) in chunks of 16 bytes. Chunk c of a row lies at place c ^ (row % 8): eight rows of a
// column, or eight chunks of a row, are in different banks.
template <typename T, int kDim>
struct SharedTile {
  static constexpr int kChunk = 16 / sizeof(T);  // elements
  static constexpr int kChunks = kDim / kChunk;
  static_assert(kChunks % 8 == 0);
  T* data;

  __device__ __forceinline__ T* chunk(int row, int c) const {
    return data + row * kDim + (c ^ (row % 8)) * kChunk;
  }
  // Fills kRows rows from `rows` rows of head_dim elements; zeros around them. Another thread's
  // part is there after cp_async_wait and a barrier.
  template <int kRows>
  __device__ __forceinline__ void load(const T* from, int64_t row_width, int rows, int head_dim,
                                       bool aligned) const {
#pragma unroll 2  // more keep so many addresses at hand that registers spill
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kAttentionThreads) {
      const int row = i / kChunks, c = i % kChunks, column = c * kChunk;
      const T* source = from + row * row_width + column;
      if (aligned) {
        const bool valid = row < rows && column < head_dim;
        cp_async_16(chunk(row, c), valid ? source : from, valid);
        continue;
      }
      union {
        uint4 packet;
        T values[kChunk];
      } run;
      run.packet = {0, 0, 0, 0};
#pragma unroll
      for (int e = 0; e < kChunk; ++e) {
        if (row < rows && column + e < head_dim) run.values[e] = source[e];
      }
      *reinterpret_cast<uint4*>(chunk(row, c)) = run.packet;
    }
  }
};

__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x) % kWarpSize; }
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x) / kWarpSize; }

// mma.sync: a warp has 16 rows; the layout of a fragment is that of its result, see
// mma_m16n8k16, and a fragment of scores rounded to T is an operand of the next product as it lies.
template <typename T_, int kDim_, int kCols_>
struct TensorCores {
  using T = T_;
  using Tile = SharedTile<T, kDim_>;
  static constexpr int kDim = kDim_, kCols = kCols_;
  static constexpr int kRows = 2;                            // of a thread
  static constexpr int kScoreColumns = kCols / 4, kRun = 2;  // of a thread
  static constexpr int kLanesOfRow = 4;                      // they hold a row together
  static constexpr size_t kScratchBytes = 0;
  static constexpr int kBlocks = 2;  // of a multiprocessor, at least

  template <int kColumns>
  struct Fragment {
    float d[kColumns / 8][4] = {};
    static constexpr int kOfThread = kColumns / 4;  // columns
    __device__ __forceinline__ float& at(int i, int j) { return d[j / 2][2 * i + j % 2]; }
  };

  __device__ static int row(int i) { return warp_index() * 16 + lane_index() / 4 + 8 * i; }
  __device__ static int score_column(int j) { return j / 2 * 8 + lane_index() % 4 * 2 + j % 2; }
  __device__ static int out_column(int j) { return score_column(j); }

  // scores = own streamed^T
  __device__ static void multiply(const Tile& own, const Tile& streamed, Fragment<kCols>& scores) {
    const int lane = lane_index(), eight = lane % 8, second = lane / 8 % 2, upper = lane / 16;
#pragma unroll 2
    for (int k = 0; k < kDim / 16; ++k) {
      uint32_t a[4];
      ldmatrix_x4(a, own.chunk(warp_index() * 16 + second * 8 + eight, 2 * k + upper));
#pragma unroll
      for (int n = 0; n < kCols / 16; ++n) {
        uint32_t b[4];
        ldmatrix_x4(b, streamed.chunk(16 * n + upper * 8 + eight, 2 * k + second));
        mma_m16n8k16<T>(scores.d[2 * n], a, {b[0], b[1]});
        mma_m16n8k16<T>(scores.d[2 * n + 1], a, {b[2], b[3]});
      }
    }
  }

  // out += scores streamed, the scores rounded to T
  __device__ static void add_product(Fragment<kCols>& scores, const Tile& streamed,
                                     Fragment<kDim>& out, float*) {
    const int lane = lane_index(), eight = lane % 8, second = lane / 8 % 2, upper = lane / 16;
#pragma unroll
    for (int k = 0; k < kCols / 16; ++k) {
      const float(&left)[4] = scores.d[2 * k];
      const float(&right)[4] = scores.d[2 * k + 1];
      const uint32_t a[4] = {pair(left[0], left[1]), pair(left[2], left[3]),
                             pair(right[0], right[1]), pair(right[2], right[3])};
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
        uint32_t b[4];
        ldmatrix_x4_transposed(b, streamed.chunk(16 * k + second * 8 + eight, 2 * n + upper));
        mma_m16n8k16<T>(out.d[2 * n], a, {b[0], b[1]});
        mma_m16n8k16<T>(out.d[2 * n + 1], a, {b[2], b[3]});
      }
    }
  }

 private:
  __device__ static uint32_t pair(float low, float high) {
    union {
      T values[2];
      uint32_t bits;
    } both;
    both.values[0] = narrowed<T>(low);
    both.values[1] = narrowed<T>(high);
    return both.bits;
  }
};

// Multiply-adds in f32. A warp has rows 4 w to 4 w + 3 and the same further by 16, 32, 48; scores
// pass through shared memory to reach the lanes that multiply them.
template <int kDim_, int kCols_>
struct PlainMultiply {
  using T = float;
  using Tile = SharedTile<float, kDim_>;
  static constexpr int kDim = kDim_, kCols = kCols_;
  static constexpr int kRows = 4;
  static constexpr int kScoreColumns = kCols / 8, kRun = 4;
  static constexpr int kLanesOfRow = 8;
  static constexpr int kBlocks = 1;
  static constexpr int kScratchWidth = kCols + 1;
  static constexpr size_t kScratchBytes = sizeof(float) * kOwnRows * kScratchWidth;

  template <int kColumns>
  struct Fragment {
    float d[kRows][kColumns / 8] = {};
    static constexpr int kOfThread = kColumns / 8;
    __device__ __forceinline__ float& at(int i, int j) { return d[i][j]; }
  };

  __device__ static int row(int i) { return warp_index() * 4 + lane_index() / 8 + 16 * i; }
  __device__ static int score_column(int j) { return lane_index() % 8 + 8 * j; }
  __device__ static int out_column(int j) { return j / 4 * 32 + lane_index() % 8 * 4 + j % 4; }

  __device__ static void multiply(const Tile& own, const Tile& streamed, Fragment<kCols>& scores) {
#pragma unroll 2
    for (int c = 0; c < Tile::kChunks; ++c) {
      float a[kRows][4];
#pragma unroll
      for (int i = 0; i < kRows; ++i) load_run<4>(own.chunk(row(i), c), a[i]);
#pragma unroll
      for (int j = 0; j < kScoreColumns; ++j) {
        float b[4];
        load_run<4>(streamed.chunk(score_column(j), c), b);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
#pragma unroll
          for (int e = 0; e < 4; ++e) scores.d[i][j] = fmaf(a[i][e], b[e], scores.d[i][j]);
        }
      }
    }
  }

  __device__ static void add_product(Fragment<kCols>& scores, const Tile& streamed,
                                     Fragment<kDim>& out, float* scratch) {
    __syncwarp();  // the product before this one has been read
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kScoreColumns; ++j) {
        scratch[row(i) * kScratchWidth + score_column(j)] = scores.d[i][j];
      }
    }
    __syncwarp();
#pragma unroll 2
    for (int k = 0; k < kCols; ++k) {
      float a[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) a[i] = scratch[row(i) * kScratchWidth + k];
#pragma unroll
      for (int n = 0; n < kDim / 32; ++n) {
        float b[4];
        load_run<4>(streamed.chunk(k, lane_index() % 8 + 8 * n), b);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
#pragma unroll
          for (int e = 0; e < 4; ++e) out.d[i][4 * n + e] = fmaf(a[i], b[e], out.d[i][4 * n + e]);
        }
      }
    }
  }
};

// Over the lanes that hold a row together.
template <typename Multiply, typename F>
__device__ __forceinline__ float reduce_row(float value, F f) {
#pragma unroll
  for (int bits = Multiply::kLanesOfRow / 2; bits > 0; bits /= 2) {
    value = f(value, __shfl_xor_sync(kAllLanes, value, bits));
  }
  return value;
}

// The streamed tiles of a block: two at a time (keys and values, or queries and gradients), the
// next ones on their way while step works. load(tile, stage) begins to fill a stage, step(tile,
// stage) reads it. A barrier must stand between two calls.
template <typename Load, typename Step>
__device__ __forceinline__ void stream_tiles(int begin, int end, Load load, Step step) {
  if (begin < end) load(begin, 0);
  cp_async_commit();
  for (int tile = begin, stage = 0; tile < end; ++tile, stage ^= 1) {
    cp_async_wait<0>();
    __syncthreads();  // the tile is there for all, and all have read the one before
    if (tile + 1 < end) load(tile + 1, stage ^ 1);
    cp_async_commit();
    step(tile, stage);
  }
}

}  // namespace fsdp::cuda
