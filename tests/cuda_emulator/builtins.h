// The names that CUDA gives to device code and the C++ compiler does not know, as far as kernels
// and tests use them: indices, barriers, an atomic. Included by the emulator's
// kernels/cuda/intrinsics.h only. Read next: warp.h, tensor_core.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "tests/cuda_emulator/scheduler.h"

#define threadIdx (::fsdp::emulator::thread_index())
#define blockIdx (::fsdp::emulator::block_index())
#define blockDim (::fsdp::emulator::block_extent())
#define gridDim (::fsdp::emulator::grid_extent())

#undef __shared__  // use FSDP_SHARED or dynamic_shared: the emulator cannot see a plain one
#define __launch_bounds__(...)
#undef __forceinline__
#define __forceinline__ inline

#define FSDP_EMULATOR_PLACE(what) (::fsdp::emulator::Place{__FILE__, __LINE__, what})
#define __syncthreads() ::fsdp::emulator::block_barrier(FSDP_EMULATOR_PLACE("__syncthreads"))
#define __syncthreads_count(predicate) \
  ::fsdp::emulator::block_count(FSDP_EMULATOR_PLACE("__syncthreads_count"), (predicate) ? 1 : 0)
#define __syncthreads_or(predicate) (__syncthreads_count(predicate) > 0)
#define __syncthreads_and(predicate) (__syncthreads_count(!(predicate)) == 0)

#define __threadfence() ::fsdp::emulator::fence()

// Also against other streams' kernels.
template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_add(value);
}

using std::max;
using std::min;
