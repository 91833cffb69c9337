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
Sum<T> add(Sum<T> sum, T value) {
  return sum + static_cast<Sum<T>>(value);
}

template <typename T>
Sum<T> larger(Sum<T> best, T candidate) {
  const Sum<T> value = static_cast<Sum<T>>(candidate);
  return value > best || value != value ? value : best;
}

// The first two sources at once, then one at a time: the prefetcher likes streams that go on, and
// two ranks are the most common number.
template <typename T, Sum<T> (*combine)(Sum<T>, T)>
void start(const T* first, const T* second, Sum<T>* sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] = combine(static_cast<Sum<T>>(first[i]), second[i]);
}

template <typename T, Sum<T> (*combine)(Sum<T>, T)>
void go_on(const T* source, Sum<T>* sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] = combine(sum[i], source[i]);
}

template <typename T>
void store(const Sum<T>* sum, T* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(sum[i]);
}

template <typename T>
void store_quotient(const Sum<T>* sum, Sum<T> divisor, T* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(sum[i] / divisor);
}

template <typename T, Sum<T> (*combine)(Sum<T>, T)>
void reduce(std::span<const std::byte* const> sources, Sum<T> divisor, T* out, int64_t numel) {
  alignas(64) Sum<T> sum[kBlock];
  const auto source = [&](size_t r) { return reinterpret_cast<const T*>(sources[r]); };
  for (int64_t begin = 0; begin < numel; begin += kBlock) {
    const int64_t n = std::min(kBlock, numel - begin);
    start<T, combine>(source(0) + begin, source(1) + begin, sum, n);
    for (size_t r = 2; r < sources.size(); ++r) go_on<T, combine>(source(r) + begin, sum, n);
    divisor == 1 ? store<T>(sum, out + begin, n) : store_quotient<T>(sum, divisor, out + begin, n);
  }
}

}  // namespace

namespace {

template <typename T>
void add_onto(const Sum<T>* begin_with, std::span<const std::byte* const> sources, Sum<T>* out,
              int64_t numel) {
  alignas(64) Sum<T> sum[kBlock];
  const auto source = [&](size_t r) { return reinterpret_cast<const T*>(sources[r]); };
  for (int64_t begin = 0; begin < numel; begin += kBlock) {
    const int64_t n = std::min(kBlock, numel - begin);
    if (begin_with) {
      std::copy_n(begin_with + begin, n, sum);
      go_on<T, add<T>>(source(0) + begin, sum, n);
    } else {
      for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<Sum<T>>(source(0)[begin + i]);
    }
    for (size_t r = 1; r < sources.size(); ++r) go_on<T, add<T>>(source(r) + begin, sum, n);
    std::copy_n(sum, n, out + begin);
  }
}

}  // namespace

void add_in_order(DType dtype, const std::byte* start, std::span<const std::byte* const> sources,
                  std::byte* out, int64_t numel) {
  dispatch_floating(dtype, "sum_in_order", [&]<typename T>(TypeTag<T>) {
    add_onto<T>(reinterpret_cast<const Sum<T>*>(start), sources, reinterpret_cast<Sum<T>*>(out),
                numel);
  });
}

void reduce_in_order(DType dtype, ReduceOp op, std::span<const std::byte* const> sources,
                     std::byte* out, int64_t numel) {
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto divisor = static_cast<Sum<T>>(op == ReduceOp::kAverage ? sources.size() : 1);
    T* const typed_out = reinterpret_cast<T*>(out);
    if (op == ReduceOp::kMax) return reduce<T, larger<T>>(sources, divisor, typed_out, numel);
    reduce<T, add<T>>(sources, divisor, typed_out, numel);
  };
  switch (dtype) {
    case DType::kI32:
      return run(TypeTag<int32_t>{});
    case DType::kI64:
      return run(TypeTag<int64_t>{});
    default:
      dispatch_floating(dtype, "reduce", run);
  }
}

}  // namespace fsdp::comm
