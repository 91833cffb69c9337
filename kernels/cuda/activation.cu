// Activations and gated linear units, forward and backward; the functions themselves:
// activation_functions.h. Bound by memory: exp and erf hide behind the loads. Computed in f32;
// results may overwrite operands.
#include "core/layer_args.h"
#include "kernels/cuda/activation_functions.h"
#include "kernels/cuda/column_sums.h"

namespace fsdp::cuda {
namespace {

// f(an object of that activation's functions). Those of well-known models have kernels of their
// own.
template <typename F>
auto dispatch_activation(Activation kind, std::string_view op, F&& f) {
  switch (kind) {
    case Activation::kGeluTanh:
      return f(GeluTanh<ExactConstants>{});
    case Activation::kGeluBloom:
      return f(GeluTanh<BloomConstants>{});
    case Activation::kGeluErf:
      return f(GeluErf{});
    case Activation::kRelu:
      return f(Relu{});
    case Activation::kNone:
      fail("[{}] kind: expected an activation, got none", op);
    default:
      return f(Chosen{kind});
  }
}

template <typename F>
auto dispatch_gate(Activation kind, F&& f) {
  return kind == Activation::kSilu ? f(Silu{}) : f(Chosen{kind});
}

// mapping: a thread per 16 bytes
// bytes:   2 N elements forward, 3 N backward
// in f32:  all arithmetic
// source:  Hendrycks & Gimpel 2016, "Gaussian error linear units"
template <typename F, typename T>
struct ActivationForward {
  F f;
  const T* x;
  T* y;

  template <int V>
  __device__ void at(int64_t i) const {
    float values[V];
    load_widened<V>(x + i, values);
#pragma unroll
    for (int j = 0; j < V; ++j) values[j] = f.value(values[j]);
    store_narrowed<V>(y + i, values);
  }
};

template <typename F, typename T>
struct ActivationBackward {
  F f;
  const T* x;
  const T* dy;
  T* dx;

  template <int V>
  __device__ void at(int64_t i) const {
    float gradients[V];
    derive<V>(i, gradients);
  }
  template <int V>
  __device__ void derive(int64_t i, float (&gradients)[V]) const {
    float values[V];
    load_widened<V>(x + i, values);
    load_widened<V>(dy + i, gradients);
#pragma unroll
    for (int j = 0; j < V; ++j) gradients[j] *= f.derivative(values[j]);
    store_narrowed<V>(dx + i, gradients);
  }
};

// Where element i of y has its gate, and `up` behind it: in a tensor of its own, or in rows whose
// halves gate and up are.
struct GatePlace {
  int64_t width;  // of a half; 0: in a tensor of its own

  __device__ int64_t operator()(int64_t i) const {
    if (width == 0) return i;
    // 64 bits take several times as long to divide.
    const int64_t row =
        i >> 32 == 0 ? static_cast<uint32_t>(i) / static_cast<uint32_t>(width) : i / width;
    return i + row * width;
  }
};

// The rows of dx for the sums over rows that are the bias's gradient: dx is not read again.
// mapping: that of sum_chunks
// bytes:   3 N elements
// in f32:  all arithmetic and sums; what is added is dx as stored
// source:  as above
template <typename F, typename T>
struct DerivedRows {
  ActivationBackward<F, T> all;
  int64_t columns;

  template <int V>
  __device__ void values(int64_t row, int64_t column, float (&out)[V]) const {
    all.template derive<V>(row * columns + column, out);
#pragma unroll
    for (int j = 0; j < V; ++j) out[j] = widened<float>(narrowed<T>(out[j]));
  }
};

// mapping: a thread per 16 bytes
// bytes:   3 N elements forward, 5 N backward
// in f32:  all arithmetic; the gate's activation is computed again in backward
// source:  Shazeer 2020, "GLU variants improve transformer"
template <typename F, typename T>
struct GluForward {
  F f;
  GatePlace place;
  const T* gate;
  const T* up;
  T* y;

  template <int V>
  __device__ void at(int64_t i) const {
    const int64_t at = place(i);
    float g[V], u[V];
    load_widened<V>(gate + at, g);
    load_widened<V>(up + at, u);
#pragma unroll
    for (int j = 0; j < V; ++j) g[j] = f.value(g[j]) * u[j];
    store_narrowed<V>(y + i, g);
  }
};

template <typename F, typename T>
struct GluBackward {
  F f;
  GatePlace place;
  const T* gate;
  const T* up;
  const T* dy;
  T* dgate;
  T* dup;

  template <int V>
  __device__ void at(int64_t i) const {
    const int64_t at = place(i);
    float g[V], u[V], d[V];
    load_widened<V>(gate + at, g);
    load_widened<V>(up + at, u);
    load_widened<V>(dy + i, d);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      u[j] = d[j] * u[j] * f.derivative(g[j]);
      d[j] = d[j] * f.value(g[j]);
    }
    store_narrowed<V>(dgate + at, u);
    store_narrowed<V>(dup + at, d);
  }
};

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const ActivationForwardArgs& args) {
  const Tensor &x = args.x, &y = args.y;
  const Op op(*this, stream, args);
  dispatch_device(x.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    dispatch_activation(args.kind, op.name(), [&]<typename F>(F f) {
      for_each_element<run_of<T>()>(op, x.numel(),
                                    ActivationForward<F, T>{f, x.data_as<T>(), y.data_as<T>()},
                                    {x.data(), y.data()});
    });
  });
}

template <>
void CudaBackend::compute(Stream& stream, const ActivationBackwardArgs& args) {
  const Tensor &x = args.x, &dy = args.dy, &dx = args.dx;
  const Op op(*this, stream, args);
  dispatch_device(x.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    dispatch_activation(args.kind, op.name(), [&]<typename F>(F f) {
      const ActivationBackward<F, T> derive{f, x.data_as<T>(), dy.data_as<T>(), dx.data_as<T>()};
      const std::initializer_list<const void*> pointers = {x.data(), dy.data(), dx.data()};
      if (args.dbias) {
        const int64_t columns = x.shape().last();
        sum_columns<run_of<T>()>(op, DerivedRows<F, T>{derive, columns}, x.shape().rows(),
                                 aligned_to_16(pointers) && columns % run_of<T>() == 0, *args.dbias,
                                 args.accumulate_bias);
      } else {
        for_each_element<run_of<T>()>(op, x.numel(), derive, pointers);
      }
    });
  });
}

// Halves of rows are aligned where the first row's are: then rows are whole runs.
template <>
void CudaBackend::compute(Stream& stream, const GluForwardArgs& args) {
  const Tensor& y = args.y;
  const int64_t width = args.up ? 0 : y.shape().last();
  const Op op(*this, stream, args);
  dispatch_device(y.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    const T* const gate = args.gate.data_as<T>();
    const T* const up = args.up ? args.up->data_as<T>() : gate + width;
    dispatch_gate(args.kind, [&]<typename F>(F f) {
      for_each_element<run_of<T>()>(op, y.numel(),
                                    GluForward<F, T>{f, {width}, gate, up, y.data_as<T>()},
                                    {gate, up, y.data()});
    });
  });
}

template <>
void CudaBackend::compute(Stream& stream, const GluBackwardArgs& args) {
  const Tensor& dy = args.dy;
  const int64_t width = args.up ? 0 : dy.shape().last();
  const Op op(*this, stream, args);
  dispatch_device(dy.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    const T* const gate = args.gate.data_as<T>();
    const T* const up = args.up ? args.up->data_as<T>() : gate + width;
    T* const dgate = args.dgate.data_as<T>();
    T* const dup = args.dup ? args.dup->data_as<T>() : dgate + width;
    dispatch_gate(args.kind, [&]<typename F>(F f) {
      for_each_element<run_of<T>()>(
          op, dy.numel(), GluBackward<F, T>{f, {width}, gate, up, dy.data_as<T>(), dgate, dup},
          {gate, up, dy.data(), dgate, dup});
    });
  });
}

}  // namespace fsdp::cuda
