// GELU (tanh and erf form), ReLU and SwiGLU, forward and backward. Bound by memory: exp and erf
// hide behind the loads. Computed in f32; results may overwrite operands.
#include "kernels/cuda/elements.h"

namespace fsdp::cuda {
namespace {

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

struct ExactConstants {
  static constexpr float kRoot = 0.7978845608028654f;  // sqrt(2 / pi)
  static constexpr float kSlope = 3 * 0.044715f * 0.7978845608028654f;
};
struct BloomConstants {  // transformers, modeling_bloom.py: bloom_gelu_forward, bloom_gelu_back
  static constexpr float kRoot = 0.79788456f;
  static constexpr float kSlope = 0.1070322243f;
};

// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x sigmoid(2u).
template <typename Constants>
struct GeluTanh {
  static __device__ float gate(float x) {
    return sigmoid(2 * Constants::kRoot * (x + 0.044715f * (x * x * x)));
  }
  static __device__ float value(float x) { return x * gate(x); }
  static __device__ float derivative(float x) {
    const float s = gate(x);
    // where s is 0 or 1 the polynomial may be infinite, and 0 * inf is not a number
    const float slope = s * (1 - s);
    return slope == 0 ? s
                      : s + x * slope * (2 * Constants::kRoot + 2 * Constants::kSlope * (x * x));
  }
};

// x Phi(x), Phi the distribution function of the standard normal.
struct GeluErf {
  static __device__ float phi(float x) { return 0.5f * (1 + erff(x * 0.7071067811865476f)); }
  static __device__ float value(float x) { return x * phi(x); }
  static __device__ float derivative(float x) {
    const float density = 0.3989422804014327f * expf(-0.5f * (x * x));
    return phi(x) + (density == 0 ? 0.0f : x * density);
  }
};

struct Relu {  // of NaN: NaN
  static __device__ float value(float x) { return x < 0 ? 0.0f : x; }
  static __device__ float derivative(float x) { return x <= 0 ? 0.0f : 1.0f; }
};

// f(the struct of that activation).
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
    default:
      fail("[{}] kind: expected an activation, got {}", op, static_cast<int>(kind));
  }
}

// mapping: a thread per 16 bytes
// bytes:   2 N elements forward, 3 N backward
// in f32:  all arithmetic
// source:  Hendrycks & Gimpel 2016, "Gaussian error linear units"
template <typename F, typename T>
struct ActivationForward {
  const T* x;
  T* y;

  template <int V>
  __device__ void at(int64_t i) const {
    float values[V];
    load_widened<V>(x + i, values);
#pragma unroll
    for (int j = 0; j < V; ++j) values[j] = F::value(values[j]);
    store_narrowed<V>(y + i, values);
  }
};

template <typename F, typename T>
struct ActivationBackward {
  const T* x;
  const T* dy;
  T* dx;

  template <int V>
  __device__ void at(int64_t i) const {
    float values[V], gradients[V];
    load_widened<V>(x + i, values);
    load_widened<V>(dy + i, gradients);
#pragma unroll
    for (int j = 0; j < V; ++j) gradients[j] *= F::derivative(values[j]);
    store_narrowed<V>(dx + i, gradients);
  }
};

// mapping: a thread per 16 bytes
// bytes:   3 N elements forward, 5 N backward
// in f32:  all arithmetic; the sigmoid is computed again in backward
// source:  Shazeer 2020, "GLU variants improve transformer"
template <typename T>
struct SwigluForward {
  const T* gate;
  const T* up;
  T* y;

  template <int V>
  __device__ void at(int64_t i) const {
    float g[V], u[V];
    load_widened<V>(gate + i, g);
    load_widened<V>(up + i, u);
#pragma unroll
    for (int j = 0; j < V; ++j) g[j] = g[j] * sigmoid(g[j]) * u[j];
    store_narrowed<V>(y + i, g);
  }
};

template <typename T>
struct SwigluBackward {
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
      const float s = sigmoid(g[j]), value = g[j] * s;
      u[j] = d[j] * u[j] * s * (1 + g[j] * (1 - s));
      d[j] = d[j] * value;
    }
    store_narrowed<V>(dgate + i, u);
    store_narrowed<V>(dup + i, d);
  }
};

}  // namespace

void CudaBackend::activation_forward(Stream& stream, Activation kind, const Tensor& x, Tensor& y) {
  const Op op(*this, stream, "activation_forward", x, y);
  dispatch_device(x.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    dispatch_activation(kind, op.name(), [&]<typename F>(F) {
      for_each_element<run_of<T>()>(op, x.numel(),
                                    ActivationForward<F, T>{x.data_as<T>(), y.data_as<T>()},
                                    {x.data(), y.data()});
    });
  });
}

void CudaBackend::activation_backward(Stream& stream, Activation kind, const Tensor& x,
                                      const Tensor& dy, Tensor& dx) {
  const Op op(*this, stream, "activation_backward", x, dy, dx);
  dispatch_device(x.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    dispatch_activation(kind, op.name(), [&]<typename F>(F) {
      for_each_element<run_of<T>()>(
          op, x.numel(), ActivationBackward<F, T>{x.data_as<T>(), dy.data_as<T>(), dx.data_as<T>()},
          {x.data(), dy.data(), dx.data()});
    });
  });
}

void CudaBackend::swiglu_forward(Stream& stream, const Tensor& gate, const Tensor& up, Tensor& y) {
  const Op op(*this, stream, "swiglu_forward", gate, up, y);
  dispatch_device(gate.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    for_each_element<run_of<T>()>(
        op, gate.numel(), SwigluForward<T>{gate.data_as<T>(), up.data_as<T>(), y.data_as<T>()},
        {gate.data(), up.data(), y.data()});
  });
}

void CudaBackend::swiglu_backward(Stream& stream, const Tensor& gate, const Tensor& up,
                                  const Tensor& dy, Tensor& dgate, Tensor& dup) {
  const Op op(*this, stream, "swiglu_backward", gate, up, dy, dgate, dup);
  dispatch_device(gate.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    for_each_element<run_of<T>()>(
        op, gate.numel(),
        SwigluBackward<T>{gate.data_as<T>(), up.data_as<T>(), dy.data_as<T>(), dgate.data_as<T>(),
                          dup.data_as<T>()},
        {gate.data(), up.data(), dy.data(), dgate.data(), dup.data()});
  });
}

}  // namespace fsdp::cuda
