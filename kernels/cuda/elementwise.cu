// Element by element: add, cast, divide, fill_normal, advance_steps. All but fill_normal are bound
// by memory. The sum of an add, and what divide computes, is formed in f32 (f64 where one of them
// is).
#include "core/layer_args.h"
#include "core/rng.h"
#include "core/shard_args.h"
#include "kernels/cuda/elements.h"

namespace fsdp::cuda {
namespace {

// mapping: a thread per eight elements
// bytes:   those of a, b and out, once each
// in f32:  the sum (f64 where one of the three is)
// source:  core/kernel_args.h, add
template <typename A>
struct Add {
  AnyElements a, b, out;  // out may be a or b: a thread has read its elements before it writes them

  template <int V>
  __device__ void at(int64_t i) const {
    A x[V], y[V];
    a.load<V>(i, x);
    b.load<V>(i, y);
#pragma unroll
    for (int j = 0; j < V; ++j) x[j] += y[j];
    out.store<V>(i, x);
  }
};

// mapping: as Add
// bytes:   those of x and out
// in f32:  what passes between two types; f64 reaches 16 bits through f32
// source:  core/kernel_args.h, cast
template <typename TX, typename TOut>
struct Cast {
  const TX* x;
  TOut* out;

  template <int V>
  __device__ void at(int64_t i) const {
    using A = std::conditional_t<std::is_same_v<TX, double> && std::is_same_v<TOut, double>, double,
                                 float>;
    A values[V];
    load_widened<V>(x + i, values);
    store_narrowed<V>(out + i, values);
  }
};

// mapping: as Add
// bytes:   those of x, twice
// in f32:  the quotient (a division, as on the CPU, not a product with the reciprocal)
// source:  core/kernel_args.h, divide
template <typename A, typename T>
struct Divide {
  T* x;
  A divisor;

  template <int V>
  __device__ void at(int64_t i) const {
    A values[V];
    load_widened<V>(x + i, values);
#pragma unroll
    for (int j = 0; j < V; ++j) values[j] /= divisor;
    store_narrowed<V>(x + i, values);
  }
};

// mapping: a thread per element; both of a pair compute the pair
// bytes:   those of x
// in f64:  everything: initial values must not depend on where they are drawn
// source:  core/rng.cpp, normal_pair (Box-Muller over one Philox block)
template <typename T>
struct FillNormal {
  T* x;
  double mean, deviation;
  uint64_t seed, name_hash, first_index;

  __device__ double normal(uint64_t index) const {
    const uint64_t pair = index / 2;
    const Philox4x32 words =
        philox4x32({static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32),
                    static_cast<uint32_t>(name_hash), static_cast<uint32_t>(name_hash >> 32)},
                   {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    const uint64_t high = (static_cast<uint64_t>(words[0]) << 32) | words[1];
    const uint64_t low = (static_cast<uint64_t>(words[2]) << 32) | words[3];
    constexpr double kPi = 3.141592653589793238462643383279502884;
    const double u = (static_cast<double>(high >> 11) + 0.5) * 0x1p-53;
    const double angle = 2 * kPi * (static_cast<double>(low >> 11) * 0x1p-53);
    const double radius = sqrt(-2 * log(u));
    return radius * (index % 2 ? sin(angle) : cos(angle));
  }

  template <int V>
  __device__ void at(int64_t i) const {
    double values[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
      values[j] = mean;
      if (deviation != 0)
        values[j] = fma(deviation, normal(first_index + static_cast<uint64_t>(i + j)), mean);
    }
    store_narrowed<V>(x + i, values);
  }
};

// mapping: a thread per parameter
// bytes:   12 a parameter
// in i32:  all
// source:  core/kernel_args.h, advance_steps
struct AdvanceSteps {
  int32_t* step_counts;
  const int32_t* present;
  const int32_t* skip;

  template <int V>
  __device__ void at(int64_t i) const {
    if (*skip != 0) return;
#pragma unroll
    for (int j = 0; j < V; ++j) step_counts[i + j] += present[i + j];
  }
};

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const AddArgs& args) {
  const Tensor &a = args.a, &b = args.b, &out = args.out;
  const Op op(*this, stream, args);
  bool wide = false;
  for (const DType dtype : {a.dtype(), b.dtype(), out.dtype()}) {
    dispatch_device_wide(dtype, op.name(), [](auto) {});  // refuses what is not floating
    wide |= dtype == DType::kF64;
  }
  const auto add = [&]<typename A>(TypeTag<A>) {
    for_each_element<8>(op, out.numel(), Add<A>{AnyElements(a), AnyElements(b), AnyElements(out)},
                        {a.data(), b.data(), out.data()});
  };
  wide ? add(TypeTag<double>{}) : add(TypeTag<float>{});
}

template <>
void CudaBackend::compute(Stream& stream, const CastArgs& args) {
  const Tensor &x = args.x, &out = args.out;
  if (x.data() == out.data() && x.dtype() == out.dtype()) return;
  const Op op(*this, stream, args);
  dispatch_device_wide(x.dtype(), op.name(), [&]<typename TX>(TypeTag<TX>) {
    dispatch_device_wide(out.dtype(), op.name(), [&]<typename TOut>(TypeTag<TOut>) {
      for_each_element<run_of<TX, TOut>()>(op, out.numel(),
                                           Cast<TX, TOut>{x.data_as<TX>(), out.data_as<TOut>()},
                                           {x.data(), out.data()});
    });
  });
}

template <>
void CudaBackend::compute(Stream& stream, const DivideArgs& args) {
  if (args.divisor == 1) return;
  const Tensor& x = args.x;
  const Op op(*this, stream, args);
  dispatch_device_wide(x.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    using A = Accumulate<T>;
    for_each_element<run_of<T>()>(
        op, x.numel(), Divide<A, T>{x.data_as<T>(), static_cast<A>(args.divisor)}, {x.data()});
  });
}

template <>
void CudaBackend::compute(Stream& stream, const FillNormalArgs& args) {
  const Tensor& x = args.x;
  const Op op(*this, stream, args);
  dispatch_device_wide(x.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    for_each_element<1>(op, x.numel(),
                        FillNormal<T>{x.data_as<T>(), args.mean, args.deviation, args.seed,
                                      args.name_hash, static_cast<uint64_t>(args.first_index)},
                        {});
  });
}

template <>
void CudaBackend::compute(Stream& stream, const AdvanceStepsArgs& args) {
  const Op op(*this, stream, args);
  for_each_element<1>(op, args.step_counts.numel(),
                      AdvanceSteps{args.step_counts.data_as<int32_t>(),
                                   args.present.data_as<int32_t>(), args.skip.data_as<int32_t>()},
                      {});
}

}  // namespace fsdp::cuda
