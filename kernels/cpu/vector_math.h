// exp, log, tanh, erf without branches or calls in f32, so that loops over them vectorise. In f64
// they are the C library's: there exactness counts, not speed.
// Errors in f32, over all floats: see tests/kernels/vector_math_test.cpp.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace fsdp::cpu {

// Results below 2^-125 are flushed to zero; infinities and NaN as std::exp.
inline float simd_exp(float x) {
  // x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 leaves n + 126 in the low bits of t.
  constexpr float kShift = 12582912.0f + 126.0f;
  x = x < -87.6f ? -87.6f : x;  // n = -126: scale 0
  x = x > 89.0f ? 89.0f : x;    // overflows below; NaN passes both
  const float t = x * 1.44269504f + kShift;
  const float n = t - kShift;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;  // Cephes' expf: (e^r - 1 - r) / r^2
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const float scale = std::bit_cast<float>(std::bit_cast<uint32_t>(t) << 23);  // 2^(n - 1)
  return (p + p) * scale;
}
inline double simd_exp(double x) { return std::exp(x); }

inline float simd_sigmoid(float x) { return 1.0f / (1.0f + simd_exp(-x)); }
inline double simd_sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Cephes' tanhf: a polynomial near 0, from e^2x beyond.
inline float simd_tanh(float x) {
  const float t = std::fabs(x), s = x * x;
  const float far = std::copysign(1.0f - 2.0f / (simd_exp(2.0f * t) + 1.0f), x);
  float near = -5.70498872745e-3f;
  near = near * s + 2.06390887954e-2f;
  near = near * s - 5.37397155531e-2f;
  near = near * s + 1.33314422036e-1f;
  near = near * s - 3.33332819422e-1f;
  near = near * s * x + x;
  return t > 0.625f ? far : near;
}
inline double simd_tanh(double x) { return std::tanh(x); }

// After N. Juffa's erff: a polynomial near 0, 1 - exp(polynomial) beyond.
inline float simd_erf(float x) {
  const float t = std::fabs(x), s = x * x;
  const float high = -1.72853470e-5f * t + 3.83197126e-4f;
  float far = high * s + (-3.88396438e-3f * t + 2.42546219e-2f);
  far = far * t - 1.06777877e-1f;
  far = far * t - 6.34846687e-1f;
  far = far * t - 1.28717512e-1f;
  far = far * t - t;
  far = std::copysign(1.0f - simd_exp(far), x);
  float near = -5.96761703e-4f;
  near = near * s + 4.99119423e-3f;
  near = near * s - 2.67681349e-2f;
  near = near * s + 1.12819925e-1f;
  near = near * s - 3.76125336e-1f;
  near = near * s + 1.28379166e-1f;
  near = near * x + x;
  return t > 0.927734375f ? far : near;
}
inline double simd_erf(double x) { return std::erf(x); }

// For normal positive x; log(0) = -inf, log(inf) = inf.
inline float simd_log(float x) {
  // x = 2^n m with m in [sqrt(1/2), sqrt(2))
  const uint32_t bits = std::bit_cast<uint32_t>(x) - 0x3f3504f3u;
  const float n = static_cast<float>(static_cast<int32_t>(bits) >> 23);
  const float f = std::bit_cast<float>((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  const float s = f * f;
  float p = 7.0376836292e-2f;  // Cephes' logf
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  const float y = ((p * f * s + n * -2.12194440e-4f) - 0.5f * s + f) + n * 0.693359375f;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return x > 0 ? (x < kInfinity ? y : x) : -kInfinity;
}
inline double simd_log(double x) { return std::log(x); }

}  // namespace fsdp::cpu
