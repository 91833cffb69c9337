// What element-wise kernels share: the device type of a dtype, runs of elements in registers as the
// type they are computed in, and the launch of a body over all elements.
// Read next: kernels/cuda/elementwise.cu for its use.
#pragma once

#include "core/tensor.h"
#include "kernels/cuda/launch.h"

namespace fsdp::cuda {

// ---- types ----

// Calls f(TypeTag<T>{}) with the device type of a floating dtype; f64 is refused by name.
template <typename F>
decltype(auto) dispatch_device(DType dtype, std::string_view op, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(TypeTag<float>{});
    case DType::kBF16:
      return f(TypeTag<__nv_bfloat16>{});
    case DType::kF16:
      return f(TypeTag<__half>{});
    default:
      fail("[{}] dtype: expected f32, bf16 or f16 on a GPU, got {}", op, name_of(dtype));
  }
}

// With f64: of the scalars that losses and norms add up in.
template <typename F>
decltype(auto) dispatch_device_wide(DType dtype, std::string_view op, F&& f) {
  if (dtype == DType::kF64) return f(TypeTag<double>{});
  return dispatch_device(dtype, op, std::forward<F>(f));
}

// Conversions round once, to nearest even. A is float or double.
template <typename A, typename T>
__host__ __device__ __forceinline__ A widened(T value) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return static_cast<A>(__bfloat162float(value));
  } else if constexpr (std::is_same_v<T, __half>) {
    return static_cast<A>(__half2float(value));
  } else {
    return static_cast<A>(value);
  }
}

template <typename T, typename A>
__host__ __device__ __forceinline__ T narrowed(A value) {  // f64 reaches 16 bits through f32
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// ---- runs ----

// What one access of so many bytes moves.
template <int kBytes>
using Packet = std::conditional_t<
    kBytes == 16, uint4,
    std::conditional_t<kBytes == 8, uint2, std::conditional_t<kBytes == 4, uint32_t, uint16_t>>>;

// out[i] = from[i] for i < V, in accesses of 16 bytes; `from` is aligned to the run or 16 bytes.
template <int V, typename T>
__device__ __forceinline__ void load_run(const T* from, T (&out)[V]) {
  constexpr int kBytes = V * sizeof(T), kAccess = kBytes < 16 ? kBytes : 16;
  union {
    Packet<kAccess> packets[kBytes / kAccess];
    T values[V];
  } run;
#pragma unroll
  for (int i = 0; i < kBytes / kAccess; ++i) {
    run.packets[i] = reinterpret_cast<const Packet<kAccess>*>(from)[i];
  }
#pragma unroll
  for (int i = 0; i < V; ++i) out[i] = run.values[i];
}

template <int V, typename A, typename T>
__device__ __forceinline__ void load_widened(const T* from, A (&out)[V]) {
  T run[V];
  load_run<V>(from, run);
#pragma unroll
  for (int i = 0; i < V; ++i) out[i] = widened<A>(run[i]);
}

template <int V, typename A, typename T>
__device__ __forceinline__ void store_narrowed(T* to, const A (&values)[V]) {
  constexpr int kBytes = V * sizeof(T), kAccess = kBytes < 16 ? kBytes : 16;
  union {
    Packet<kAccess> packets[kBytes / kAccess];
    T values[V];
  } run;
#pragma unroll
  for (int i = 0; i < V; ++i) run.values[i] = narrowed<T>(values[i]);
#pragma unroll
  for (int i = 0; i < kBytes / kAccess; ++i) {
    reinterpret_cast<Packet<kAccess>*>(to)[i] = run.packets[i];
  }
}

// Elements that a thread takes at a time so that the narrowest type fills 16 bytes.
template <typename... T>
constexpr int run_of() {
  size_t narrowest = 16;
  ((narrowest = sizeof(T) < narrowest ? sizeof(T) : narrowest), ...);
  return static_cast<int>(16 / narrowest);
}

// The 16 bytes at `from`, to be held in registers as they are.
__device__ __forceinline__ uint4 load_packet(const void* from) {
  return *static_cast<const uint4*>(from);
}
template <typename T, int V>
__device__ __forceinline__ void unpack(const uint4& packet, float (&out)[V]) {
  static_assert(V * sizeof(T) == 16);
  union {
    uint4 packet;
    T values[V];
  } run = {packet};
#pragma unroll
  for (int i = 0; i < V; ++i) out[i] = widened<float>(run.values[i]);
}

// f.operator()<V>(i) or f.operator()<1>(i) for the elements of [begin, end), shared out among
// `threads`: a thread always gets the same ones. Runs of V begin at multiples of V.
template <int V, typename F>
__device__ __forceinline__ void each_run(int64_t begin, int64_t end, bool aligned, int thread,
                                         int threads, F f) {
  for (int64_t i = begin / V * V + thread * V; i < end; i += int64_t{V} * threads) {
    if (aligned && i >= begin && i + V <= end) {
      f.template operator()<V>(i);
    } else {
      for (int64_t j = i < begin ? begin : i; j < i + V && j < end; ++j) {
        f.template operator()<1>(j);
      }
    }
  }
}

// An operand whose dtype the kernel asks for when it runs: one kernel instead of one
// for every combination. All threads take the same branch.
struct AnyElements {
  void* data;
  DType dtype;

  explicit AnyElements(const Tensor& tensor) : data(tensor.data()), dtype(tensor.dtype()) {}

  template <typename F>
  __device__ __forceinline__ void as_type(F f) const {
    switch (dtype) {
      case DType::kF32:
        return f(static_cast<float*>(data));
      case DType::kBF16:
        return f(static_cast<__nv_bfloat16*>(data));
      case DType::kF16:
        return f(static_cast<__half*>(data));
      default:
        return f(static_cast<double*>(data));
    }
  }
  template <int V, typename A>
  __device__ __forceinline__ void load(int64_t i, A (&out)[V]) const {
    as_type([&](auto* from) { load_widened<V>(from + i, out); });
  }
  template <int V, typename A>
  __device__ __forceinline__ void store(int64_t i, const A (&values)[V]) const {
    as_type([&](auto* to) { store_narrowed<V>(to + i, values); });
  }
};

// ---- element by element ----

constexpr int kElementThreads = 256;

template <int V, typename Body>
__global__ void __launch_bounds__(kElementThreads) each_element(Body body, int64_t n) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (i + V <= n) {
    body.template at<V>(i);
  } else {
    for (int64_t j = i; j < n; ++j) body.template at<1>(j);
  }
}

inline bool aligned_to_16(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers) {
    if (reinterpret_cast<uintptr_t>(pointer) % 16 != 0) return false;
  }
  return true;
}

// body.at<V>(i) reads and writes elements i to i + V - 1; `pointers` are all that it touches. Views
// that are not aligned are taken one element at a time.
template <int V, typename Body>
void for_each_element(const Op& op, int64_t n, const Body& body,
                      std::initializer_list<const void*> pointers,
                      std::source_location at = std::source_location::current()) {
  if (aligned_to_16(pointers)) {
    launch(each_element<V, Body>, Grid(blocks_for(n, int64_t{V} * kElementThreads), at),
           kElementThreads, 0, op, body, n);
  } else {
    launch(each_element<1, Body>, Grid(blocks_for(n, kElementThreads), at), kElementThreads, 0, op,
           body, n);
  }
}

}  // namespace fsdp::cuda
