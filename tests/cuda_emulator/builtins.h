// The names that CUDA gives to device code and the C++ compiler does not know: indices, barriers,
// atomics, cache hints, fast mathematics. Values of the fast functions are those of the exact ones.
// Included by the emulator's kernels/cuda/intrinsics.h only. Read next: warp.h, tensor_core.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "tests/cuda_emulator/scheduler.h"

#define threadIdx (::fsdp::emulator::thread_index())
#define blockIdx (::fsdp::emulator::block_index())
#define blockDim (::fsdp::emulator::block_extent())
#define gridDim (::fsdp::emulator::grid_extent())
constexpr int warpSize = 32;

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

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// ---- atomics: also against other streams' kernels ----
template <typename T, typename F>
T fsdp_emulator_exchange(T* address, F next) {
  std::atomic_ref<T> at(*address);
  T old = at.load();
  while (!at.compare_exchange_weak(old, next(old))) {
  }
  return old;
}
template <typename T>
T atomicAdd(T* a, std::type_identity_t<T> v) {
  return fsdp_emulator_exchange(a, [=](T o) { return T(o + v); });
}
template <typename T>
T atomicSub(T* a, std::type_identity_t<T> v) {
  return fsdp_emulator_exchange(a, [=](T o) { return T(o - v); });
}
template <typename T>
T atomicMax(T* a, std::type_identity_t<T> v) {
  return fsdp_emulator_exchange(a, [=](T o) { return std::max(o, v); });
}
template <typename T>
T atomicMin(T* a, std::type_identity_t<T> v) {
  return fsdp_emulator_exchange(a, [=](T o) { return std::min(o, v); });
}
template <typename T>
T atomicOr(T* a, std::type_identity_t<T> v) {
  return fsdp_emulator_exchange(a, [=](T o) { return T(o | v); });
}
template <typename T>
T atomicAnd(T* a, std::type_identity_t<T> v) {
  return fsdp_emulator_exchange(a, [=](T o) { return T(o & v); });
}
template <typename T>
T atomicExch(T* a, std::type_identity_t<T> v) {
  return fsdp_emulator_exchange(a, [=](T) { return v; });
}
template <typename T>
T atomicCAS(T* a, std::type_identity_t<T> e, std::type_identity_t<T> v) {
  return fsdp_emulator_exchange(a, [=](T o) { return o == e ? v : o; });
}
inline unsigned atomicInc(unsigned* a, unsigned last) {
  return fsdp_emulator_exchange(a, [=](unsigned o) { return o >= last ? 0u : o + 1; });
}

// ---- cache hints ----
template <typename T>
T __ldg(const T* from) {
  return *from;
}
template <typename T>
T __ldcg(const T* from) {
  return *from;
}
template <typename T>
T __ldcs(const T* from) {
  return *from;
}
template <typename T>
T __ldca(const T* from) {
  return *from;
}
template <typename T>
T __ldcv(const T* from) {
  return *from;
}
template <typename T>
void __stcg(T* to, std::type_identity_t<T> value) {
  *to = value;
}
template <typename T>
void __stcs(T* to, std::type_identity_t<T> value) {
  *to = value;
}
template <typename T>
void __stwb(T* to, std::type_identity_t<T> value) {
  *to = value;
}
template <typename T>
void __stwt(T* to, std::type_identity_t<T> value) {
  *to = value;
}

// ---- bits ----
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(uint64_t{a} * b >> 32);
}

// ---- mathematics ----
using std::max;
using std::min;
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __exp2f(float x) { return std::exp2(x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __frsqrt_rn(float x) { return 1 / std::sqrt(x); }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __saturatef(float x) { return x >= 1 ? 1.0f : x > 0 ? x : 0.0f; }
inline float normcdff(float x) { return 0.5f * std::erfc(-x * 0.7071067811865476f); }
