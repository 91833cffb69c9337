// The activations and their derivatives, of one value in f32, on a GPU. Names and constants:
// transformers, activations.py; Activation in core/layer_values.h. The kernels: activation.cu.
#pragma once

#include <cuda_runtime.h>

#include "core/layer_values.h"

namespace fsdp::cuda {

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

struct ExactConstants {
  static constexpr float kSqrt2OverPi = 0.7978845608028654f;  // sqrt(2 / pi)
  static constexpr float kSlope = 3 * 0.044715f * 0.7978845608028654f;
};
struct BloomConstants {  // transformers, modeling_bloom.py: bloom_gelu_forward, bloom_gelu_back
  static constexpr float kSqrt2OverPi = 0.79788456f;
  static constexpr float kSlope = 0.1070322243f;
};

// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x sigmoid(2u).
template <typename Constants>
struct GeluTanh {
  static __device__ float gate(float x) {
    return sigmoid(2 * Constants::kSqrt2OverPi * (x + 0.044715f * (x * x * x)));
  }
  static __device__ float value(float x) { return x * gate(x); }
  static __device__ float derivative(float x) {
    const float s = gate(x);
    // where s is 0 or 1 the polynomial may be infinite, and 0 * inf is not a number
    const float slope = s * (1 - s);
    return slope == 0
               ? s
               : s + x * slope * (2 * Constants::kSqrt2OverPi + 2 * Constants::kSlope * (x * x));
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

// x sigmoid(k x)
__device__ __forceinline__ float sigmoid_times_x(float k, float x) { return x * sigmoid(k * x); }
__device__ __forceinline__ float sigmoid_times_x_derivative(float k, float x) {
  const float s = sigmoid(k * x);
  return s * (1 + k * x * (1 - s));
}

struct Silu {
  static __device__ float value(float x) { return sigmoid_times_x(1, x); }
  static __device__ float derivative(float x) { return sigmoid_times_x_derivative(1, x); }
};

// x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2). From 20 on the quotient is 1.
struct Mish {
  static __device__ float clamped(float x) { return x > 20 ? 20.0f : x; }
  static __device__ float value(float x) {
    const float e = expf(clamped(x)), n = e * (e + 2);
    return x * (n / (n + 2));
  }
  static __device__ float derivative(float x) {
    const float near = clamped(x), e = expf(near), n = e * (e + 2), t = n / (n + 2);
    return t + near * (1 + t) * (2 / (n + 2)) * (e / (1 + e));
  }
};

// The distribution function of a normal of mean 0.707107 and deviation 0.282095.
struct Laplace {
  static __device__ float scaled(float x) { return (x - 0.707107f) / (0.282095f * 1.41421356f); }
  static __device__ float value(float x) { return 0.5f * (1 + erff(scaled(x))); }
  static __device__ float derivative(float x) {
    const float z = scaled(x);
    return 0.5641895835477563f / (0.282095f * 1.41421356f) * expf(-(z * z));
  }
};

// An activation that the kernel asks for when it runs: one kernel for all that are rare, and for
// all gates but SiLU. All threads take the same branch.
struct Chosen {
  Activation kind;

  __device__ float value(float x) const {
    switch (kind) {
      case Activation::kGeluTanh:
      case Activation::kGeluFast:  // the same constant in f32
        return GeluTanh<ExactConstants>::value(x);
      case Activation::kGeluErf:
        return GeluErf::value(x);
      case Activation::kGeluBloom:
        return GeluTanh<BloomConstants>::value(x);
      case Activation::kGeluClipped: {
        const float y = GeluErf::value(x);
        return y > 10 ? 10.0f : y;
      }
      case Activation::kQuickGelu:
        return sigmoid_times_x(1.702f, x);
      case Activation::kSilu:
        return Silu::value(x);
      case Activation::kRelu:
        return Relu::value(x);
      case Activation::kReluSquared:
        return x * Relu::value(x);
      case Activation::kRelu6:
        return x > 6 ? 6.0f : Relu::value(x);
      case Activation::kLeakyRelu:
        return x > 0 ? x : 0.01f * x;
      case Activation::kTanh:
        return tanhf(x);
      case Activation::kSigmoid:
        return sigmoid(x);
      case Activation::kMish:
        return Mish::value(x);
      case Activation::kLaplace:
        return Laplace::value(x);
      default:  // kNone: a gate without one
        return x;
    }
  }

  __device__ float derivative(float x) const {
    switch (kind) {
      case Activation::kGeluTanh:
      case Activation::kGeluFast:
        return GeluTanh<ExactConstants>::derivative(x);
      case Activation::kGeluErf:
        return GeluErf::derivative(x);
      case Activation::kGeluBloom:
        return GeluTanh<BloomConstants>::derivative(x);
      case Activation::kGeluClipped:
        return x > 10 ? 0.0f : GeluErf::derivative(x);
      case Activation::kQuickGelu:
        return sigmoid_times_x_derivative(1.702f, x);
      case Activation::kSilu:
        return Silu::derivative(x);
      case Activation::kRelu:
        return Relu::derivative(x);
      case Activation::kReluSquared:
        return 2 * Relu::value(x);
      case Activation::kRelu6:
        return x >= 6 ? 0.0f : Relu::derivative(x);
      case Activation::kLeakyRelu:
        return x > 0 ? 1.0f : 0.01f;
      case Activation::kTanh: {
        const float y = tanhf(x);
        return (1 - y) * (1 + y);
      }
      case Activation::kSigmoid: {
        const float s = sigmoid(x);
        return s * (1 - s);
      }
      case Activation::kMish:
        return Mish::derivative(x);
      case Activation::kLaplace:
        return Laplace::derivative(x);
      default:
        return 1.0f;
    }
  }
};

}  // namespace fsdp::cuda
