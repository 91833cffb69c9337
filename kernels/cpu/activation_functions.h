// The activations and their derivatives, of one value in f32 or f64, without branches, so that
// loops over them vectorise. Names and constants: transformers, activations.py; Activation in
// core/layer_values.h. The loops: activation.cpp.
#pragma once

#include <cmath>
#include <numbers>

#include "kernels/cpu/vector_math.h"

namespace fsdp::cpu {

struct ExactConstants {
  static constexpr double kSqrt2OverPi = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  static constexpr double kSlope = 3 * 0.044715 * kSqrt2OverPi;
};
struct BloomConstants {  // transformers, modeling_bloom.py: bloom_gelu_forward, bloom_gelu_back
  static constexpr double kSqrt2OverPi = 0.79788456;
  static constexpr double kSlope = 0.1070322243;
};
struct TenDigits {  // FastGELUActivation
  static constexpr double kSqrt2OverPi = 0.7978845608;
  static constexpr double kSlope = 3 * 0.044715 * kSqrt2OverPi;
};

// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x sigmoid(2u).
template <typename Constants>
struct GeluTanh {
  template <typename A>
  static A two_u(A x) {
    constexpr A kTwice = A(2 * Constants::kSqrt2OverPi);
    return kTwice * (x + A(0.044715) * (x * x * x));
  }
  template <typename A>
  static A value(A x) {
    return x * simd_sigmoid(two_u(x));
  }
  template <typename A>
  static A derivative(A x) {
    constexpr A kTwiceSqrt2OverPi = A(2 * Constants::kSqrt2OverPi),
                kTwiceSlope = A(2 * Constants::kSlope);
    const A s = simd_sigmoid(two_u(x));
    return s + x * s * (A(1) - s) * (kTwiceSqrt2OverPi + kTwiceSlope * (x * x));
  }
};

// x Phi(x), Phi the distribution function of the standard normal.
struct GeluErf {
  template <typename A>
  static A phi(A x) {
    return A(0.5) * (A(1) + simd_erf(x * A(1 / std::numbers::sqrt2)));
  }
  template <typename A>
  static A value(A x) {
    return x * phi(x);
  }
  template <typename A>
  static A derivative(A x) {
    constexpr A kDensity = A(0.5 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
    // Either product could be the one that is fused with the sum: a vector's choice and that of the
    // loop for the rest of a row would differ in the last bit.
    return std::fma(x * kDensity, simd_exp(A(-0.5) * (x * x)), phi(x));
  }
};

struct GeluClipped {  // to [-10, 10]; the lower bound is never reached
  template <typename A>
  static A value(A x) {
    const A y = GeluErf::value(x);
    return y > A(10) ? A(10) : y;
  }
  template <typename A>
  static A derivative(A x) {
    return x > A(10) ? A(0) : GeluErf::derivative(x);
  }
};

// x sigmoid(k x)
template <int kThousandths>
struct SigmoidTimesX {
  template <typename A>
  static A value(A x) {
    return x * simd_sigmoid(A(kThousandths / 1000.0) * x);
  }
  template <typename A>
  static A derivative(A x) {
    constexpr A k = A(kThousandths / 1000.0);
    const A s = simd_sigmoid(k * x);
    return s * (A(1) + k * x * (A(1) - s));
  }
};
using Silu = SigmoidTimesX<1000>;
using QuickGelu = SigmoidTimesX<1702>;

struct Relu {  // of NaN: NaN
  template <typename A>
  static A value(A x) {
    return x < A(0) ? A(0) : x;
  }
  template <typename A>
  static A derivative(A x) {
    return x <= A(0) ? A(0) : A(1);
  }
};

struct ReluSquared {
  template <typename A>
  static A value(A x) {
    return x * Relu::value(x);
  }
  template <typename A>
  static A derivative(A x) {
    return A(2) * Relu::value(x);
  }
};

struct Relu6 {
  template <typename A>
  static A value(A x) {
    const A y = Relu::value(x);
    return y > A(6) ? A(6) : y;
  }
  template <typename A>
  static A derivative(A x) {
    return x >= A(6) ? A(0) : Relu::derivative(x);
  }
};

struct LeakyRelu {
  template <typename A>
  static A value(A x) {
    return x > A(0) ? x : A(0.01) * x;
  }
  template <typename A>
  static A derivative(A x) {
    return x > A(0) ? A(1) : A(0.01);
  }
};

struct Tanh {
  template <typename A>
  static A value(A x) {
    return simd_tanh(x);
  }
  template <typename A>
  static A derivative(A x) {
    const A y = simd_tanh(x);
    return (A(1) - y) * (A(1) + y);
  }
};

struct Sigmoid {
  template <typename A>
  static A value(A x) {
    return simd_sigmoid(x);
  }
  template <typename A>
  static A derivative(A x) {
    const A s = simd_sigmoid(x);
    return s * (A(1) - s);
  }
};

// x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2). From 20 on the quotient is 1.
struct Mish {
  template <typename A>
  static A clamped(A x) {
    return x > A(20) ? A(20) : x;
  }
  template <typename A>
  static A value(A x) {
    const A e = simd_exp(clamped(x)), n = e * (e + A(2));
    return x * (n / (n + A(2)));
  }
  template <typename A>
  static A derivative(A x) {
    const A near = clamped(x), e = simd_exp(near), n = e * (e + A(2)), t = n / (n + A(2));
    const A slope = (A(1) + t) * (A(2) / (n + A(2))) * (e / (A(1) + e));  // of t
    return t + near * slope;
  }
};

// The distribution function of a normal of mean 0.707107 and deviation 0.282095.
struct Laplace {
  static constexpr double kMean = 0.707107, kWidth = 0.282095 * std::numbers::sqrt2;
  template <typename A>
  static A value(A x) {
    return A(0.5) * (A(1) + simd_erf((x - A(kMean)) / A(kWidth)));
  }
  template <typename A>
  static A derivative(A x) {
    const A z = (x - A(kMean)) / A(kWidth);
    return A(std::numbers::inv_sqrtpi / kWidth) * simd_exp(-(z * z));
  }
};

struct Identity {
  template <typename A>
  static A value(A x) {
    return x;
  }
  template <typename A>
  static A derivative(A) {
    return A(1);
  }
};

}  // namespace fsdp::cpu
