// Blocks of the sum stay in the first-level cache while the sources stream past: every source is
// read once and the output written once, whatever the number of ranks.
#include "comm/host_reduce.h"

#include <algorithm>

namespace fsdp::comm {
namespace {

constexpr int64_t kBlock = 2048;  // elements

template <typename T>
using Sum = std::conditional_t<std::is_integral_v<T>, T, Accumulate<T>>;

template <typename T>
void load(const T* source, Sum<T>* sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<Sum<T>>(source[i]);
}

template <typename T>
void add(const T* source, Sum<T>* sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<Sum<T>>(source[i]);
}

template <typename T>
void take_larger(const T* source, Sum<T>* sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const Sum<T> value = static_cast<Sum<T>>(source[i]);
    sum[i] = value > sum[i] || value != value ? value : sum[i];
  }
}

template <typename T>
void store(const Sum<T>* sum, T* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(sum[i]);
}

template <typename T>
void divide(Sum<T>* sum, Sum<T> by, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] /= by;
}

template <typename T>
void reduce(ReduceOp op, std::span<const std::byte* const> sources, std::byte* out,
            int64_t numel) {
  alignas(64) Sum<T> sum[kBlock];
  for (int64_t begin = 0; begin < numel; begin += kBlock) {
    const int64_t n = std::min(kBlock, numel - begin);
    load<T>(reinterpret_cast<const T*>(sources[0]) + begin, sum, n);
    for (size_t r = 1; r < sources.size(); ++r) {
      const T* source = reinterpret_cast<const T*>(sources[r]) + begin;
      op == ReduceOp::kMax ? take_larger<T>(source, sum, n) : add<T>(source, sum, n);
    }
    if constexpr (!std::is_integral_v<T>) {
      if (op == ReduceOp::kAverage) divide<T>(sum, static_cast<Sum<T>>(sources.size()), n);
    }
    store<T>(sum, reinterpret_cast<T*>(out) + begin, n);
  }
}

}  // namespace

void reduce_in_order(DType dtype, ReduceOp op, std::span<const std::byte* const> sources,
                     std::byte* out, int64_t numel) {
  switch (dtype) {
    case DType::kI32: return reduce<int32_t>(op, sources, out, numel);
    case DType::kI64: return reduce<int64_t>(op, sources, out, numel);
    default:
      dispatch_floating(dtype, "reduce", [&](auto tag) {
        reduce<typename decltype(tag)::type>(op, sources, out, numel);
      });
  }
}

}  // namespace fsdp::comm
