// Activations and gated linear units, forward and backward; the functions themselves:
// activation_functions.h. Bound by memory: exp and erf hide behind the loads. Computed in f32;
// results may overwrite operands.
#include "kernels/cuda/activation_functions.h"
#include "kernels/cuda/elements.h"

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
    float values[V], gradients[V];
    load_widened<V>(x + i, values);
    load_widened<V>(dy + i, gradients);
#pragma unroll
    for (int j = 0; j < V; ++j) gradients[j] *= f.derivative(values[j]);
    store_narrowed<V>(dx + i, gradients);
  }
};

// mapping: a thread per 16 bytes
// bytes:   3 N elements forward, 5 N backward
// in f32:  all arithmetic; the gate's activation is computed again in backward
// source:  Shazeer 2020, "GLU variants improve transformer"
template <typename F, typename T>
struct GluForward {
  F f;
  const T* gate;
  const T* up;
  T* y;

  template <int V>
  __device__ void at(int64_t i) const {
    float g[V], u[V];
    load_widened<V>(gate + i, g);
    load_widened<V>(up + i, u);
#pragma unroll
    for (int j = 0; j < V; ++j) g[j] = f.value(g[j]) * u[j];
    store_narrowed<V>(y + i, g);
  }
};

template <typename F, typename T>
struct GluBackward {
  F f;
  const T* gate;
  const T* up;
  const T* dy;
  T* dgate;
  T* dup;

  template <int V>
  __device__ void at(int64_t i) const {
    float g[V], u[V], d[V];
    load_widened<V>(gate + i, g);
    load_widened<V>(up + i, u);
    load_widened<V>(dy + i, d);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      u[j] = d[j] * u[j] * f.derivative(g[j]);
      d[j] = d[j] * f.value(g[j]);
    }
    store_narrowed<V>(dgate + i, u);
    store_narrowed<V>(dup + i, d);
  }
};

}  // namespace

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

void CudaBackend::compute(Stream& stream, const ActivationBackwardArgs& args) {
  const Tensor &x = args.x, &dy = args.dy, &dx = args.dx;
  const Op op(*this, stream, args);
  dispatch_device(x.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    dispatch_activation(args.kind, op.name(), [&]<typename F>(F f) {
      for_each_element<run_of<T>()>(
          op, x.numel(),
          ActivationBackward<F, T>{f, x.data_as<T>(), dy.data_as<T>(), dx.data_as<T>()},
          {x.data(), dy.data(), dx.data()});
    });
  });
}

void CudaBackend::compute(Stream& stream, const GluForwardArgs& args) {
  const Tensor &gate = args.gate, &up = args.up, &y = args.y;
  const Op op(*this, stream, args);
  dispatch_device(gate.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    dispatch_gate(args.kind, [&]<typename F>(F f) {
      for_each_element<run_of<T>()>(
          op, gate.numel(), GluForward<F, T>{f, gate.data_as<T>(), up.data_as<T>(), y.data_as<T>()},
          {gate.data(), up.data(), y.data()});
    });
  });
}

void CudaBackend::compute(Stream& stream, const GluBackwardArgs& args) {
  const Tensor &gate = args.gate, &up = args.up, &dy = args.dy;
  const Tensor &dgate = args.dgate, &dup = args.dup;
  const Op op(*this, stream, args);
  dispatch_device(gate.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    dispatch_gate(args.kind, [&]<typename F>(F f) {
      for_each_element<run_of<T>()>(
          op, gate.numel(),
          GluBackward<F, T>{f, gate.data_as<T>(), up.data_as<T>(), dy.data_as<T>(),
                            dgate.data_as<T>(), dup.data_as<T>()},
          {gate.data(), up.data(), dy.data(), dgate.data(), dup.data()});
    });
  });
}

}  // namespace fsdp::cuda
