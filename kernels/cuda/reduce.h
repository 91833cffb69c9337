// Sums and maxima over a warp and over a block, in a fixed order: the same bits every time, and the
// same result in every thread.
#pragma once

#include "kernels/cuda/intrinsics.h"

namespace fsdp::cuda {

constexpr int kWarpSize = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

struct Sum {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Maximum {  // of numbers; a NaN on either side may be lost
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

template <typename F = Sum, typename T>
__device__ __forceinline__ T warp_reduce(T value, F f = {}) {
#pragma unroll
  for (int bits = kWarpSize / 2; bits > 0; bits /= 2) {
    value = f(value, __shfl_xor_sync(kAllLanes, value, bits));
  }
  return value;
}

// Called by all kThreads threads of a one-dimensional block; may be called again and again.
template <int kThreads, typename F = Sum, typename T>
__device__ __forceinline__ T block_reduce(T value, F f = {}) {
  static_assert(kThreads % kWarpSize == 0);
  constexpr int kWarps = kThreads / kWarpSize;
  value = warp_reduce(value, f);
  if constexpr (kWarps == 1) return value;
  FSDP_SHARED(partial, T[kWarps]);
  if (threadIdx.x % kWarpSize == 0) partial[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  T total = partial[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) total = f(total, partial[warp]);
  __syncthreads();  // everyone has read: the next call may write
  return total;
}

// Sums of several values at once, by groups of kThreads: a warp or the whole block.
template <int kThreads, int N>
__device__ __forceinline__ void group_sums(float (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = warp_reduce(values[i]);
  if constexpr (kThreads > kWarpSize) {
    constexpr int kWarps = kThreads / kWarpSize;
    FSDP_SHARED(partial, float[kWarps][N]);
    if (threadIdx.x % kWarpSize == 0) {
#pragma unroll
      for (int i = 0; i < N; ++i) partial[threadIdx.x / kWarpSize][i] = values[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values[i] = partial[0][i];
#pragma unroll
      for (int warp = 1; warp < kWarps; ++warp) values[i] += partial[warp][i];
    }
    __syncthreads();  // as in block_reduce
  }
}

}  // namespace fsdp::cuda
