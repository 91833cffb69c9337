// Element by element: add, cast, divide, fill_normal, advance_steps. All are bound by memory; other
// dtypes than the plain ones pass through a buffer that stays in the nearest cache.
#include <cmath>

#include "core/layer_args.h"
#include "core/shard_args.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/cpu_backend.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kGrain = int64_t{1} << 15;  // elements that one thread takes at a time
constexpr int64_t kRun = 512;                 // elements of a conversion buffer

// What a task keeps of a tensor, which may be gone when it runs.
struct Elements {
  std::byte* data;
  DType dtype;

  Elements(const Tensor& tensor)
      : data(static_cast<std::byte*>(tensor.data())), dtype(tensor.dtype()) {}

  template <typename T>
  T* at(int64_t index) const {
    return reinterpret_cast<T*>(data) + index;
  }
  template <typename T>  // T: float or double
  void load(int64_t begin, int64_t n, T* to) const {
    dispatch_floating(dtype, "load", [&]<typename S>(TypeTag<S>) { convert(at<S>(begin), to, n); });
  }
  template <typename T>
  void store(int64_t begin, int64_t n, const T* from) const {
    dispatch_floating(dtype, "store",
                      [&]<typename S>(TypeTag<S>) { convert(from, at<S>(begin), n); });
  }
};

template <typename T>  // of all three
void add_plain(const Elements& a, const Elements& b, const Elements& out, int64_t begin,
               int64_t end) {
  const T* x = a.at<T>(0);
  const T* y = b.at<T>(0);
  T* z = out.at<T>(0);
#pragma GCC ivdep  // z is x or y, or apart from both
  for (int64_t i = begin; i < end; ++i) z[i] = x[i] + y[i];
}

template <typename T>  // the type of the sum
void add_converted(const Elements& a, const Elements& b, const Elements& out, int64_t begin,
                   int64_t end) {
  T x[kRun], y[kRun];
  for (int64_t i = begin; i < end; i += kRun) {
    const int64_t run = std::min(kRun, end - i);
    a.load(i, run, x);
    b.load(i, run, y);
    for (int64_t j = 0; j < run; ++j) x[j] += y[j];
    out.store(i, run, x);
  }
}

template <typename T>  // the accumulation type
void divide_run(const Elements& x, double divisor, int64_t begin, int64_t end) {
  const auto by = static_cast<T>(divisor);
  if (x.dtype == dtype_of<T>()) {
    T* values = x.at<T>(0);
    for (int64_t i = begin; i < end; ++i) values[i] /= by;
    return;
  }
  T values[kRun];
  for (int64_t i = begin; i < end; i += kRun) {
    const int64_t run = std::min(kRun, end - i);
    x.load(i, run, values);
    for (int64_t j = 0; j < run; ++j) values[j] /= by;
    x.store(i, run, values);
  }
}

}  // namespace

template <>
void CpuBackend::compute(Stream& stream, const AddArgs& args) {
  const Tensor &a = args.a, &b = args.b, &out = args.out;
  const auto all = [&](DType dtype) {
    return a.dtype() == dtype && b.dtype() == dtype && out.dtype() == dtype;
  };
  const bool wide =
      a.dtype() == DType::kF64 || b.dtype() == DType::kF64 || out.dtype() == DType::kF64;
  const auto kernel = all(DType::kF32)   ? add_plain<float>
                      : all(DType::kF64) ? add_plain<double>
                      : wide             ? add_converted<double>
                                         : add_converted<float>;
  enqueue(stream, "add", 0,
          [kernel, n = out.numel(), a = Elements(a), b = Elements(b),
           out = Elements(out)](Worker& worker) {
            worker.team.parallel_for(
                n, kGrain, [&](int64_t begin, int64_t end) { kernel(a, b, out, begin, end); });
          });
}

template <>
void CpuBackend::compute(Stream& stream, const CastArgs& args) {
  const Tensor &x = args.x, &out = args.out;
  if (x.data() == out.data() && x.dtype() == out.dtype()) return;
  enqueue(stream, "cast", 0,
          [n = out.numel(), x = Elements(x), out = Elements(out)](Worker& worker) {
            dispatch_floating(x.dtype, "cast", [&]<typename From>(TypeTag<From>) {
              dispatch_floating(out.dtype, "cast", [&]<typename To>(TypeTag<To>) {
                worker.team.parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
                  convert(x.at<From>(begin), out.at<To>(begin), end - begin);
                });
              });
            });
          });
}

template <>
void CpuBackend::compute(Stream& stream, const DivideArgs& args) {
  if (args.divisor == 1) return;
  const Tensor& x = args.x;
  const auto kernel = x.dtype() == DType::kF64 ? divide_run<double> : divide_run<float>;
  enqueue(stream, "divide", 0,
          [kernel, n = x.numel(), x = Elements(x), divisor = args.divisor](Worker& worker) {
            worker.team.parallel_for(
                n, kGrain, [&](int64_t begin, int64_t end) { kernel(x, divisor, begin, end); });
          });
}

template <>
void CpuBackend::compute(Stream& stream, const FillNormalArgs& args) {
  const auto fill = [mean = args.mean, deviation = args.deviation, seed = args.seed,
                     name_hash = args.name_hash, first_index = args.first_index](
                        const Elements& out, int64_t begin, int64_t end) {
    double values[kRun];
    for (int64_t i = begin; i < end; i += kRun) {
      const int64_t run = std::min(kRun, end - i);
      for (int64_t j = 0; j < run; ++j) {
        if (deviation == 0) {
          values[j] = mean;
          continue;
        }
        const auto index = static_cast<uint64_t>(first_index + i + j);
        const auto pair = normal_pair(seed, name_hash, index / 2);
        values[j] = std::fma(deviation, pair[index % 2], mean);
        if (index % 2 == 0 && j + 1 < run) values[++j] = std::fma(deviation, pair[1], mean);
      }
      out.store(i, run, values);
    }
  };
  enqueue(stream, "fill_normal", 0,
          [fill, n = args.x.numel(), x = Elements(args.x)](Worker& worker) {
            worker.team.parallel_for(n, kGrain,
                                     [&](int64_t begin, int64_t end) { fill(x, begin, end); });
          });
}

template <>
void CpuBackend::compute(Stream& stream, const AdvanceStepsArgs& args) {
  enqueue(stream, "advance_steps", 0,
          [counts = args.step_counts.data_as<int32_t>(), present = args.present.data_as<int32_t>(),
           skip = args.skip.data_as<int32_t>(), n = args.step_counts.numel()](Worker&) {
            if (*skip != 0) return;
            for (int64_t i = 0; i < n; ++i) counts[i] += present[i];
          });
}

}  // namespace fsdp::cpu
