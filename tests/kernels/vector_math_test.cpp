// exp, log, tanh and erf of the vectorised loops: ulps against the C library in double, over the
// range of float, and the special values.
#include "kernels/cpu/vector_math.h"

#include <algorithm>

#include <doctest/doctest.h>

namespace fsdp::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Largest error in units of the last place over floats in [low, high], every 4099th of them.
template <typename F, typename Exact>
double largest_ulps(F f, Exact exact, float low, float high) {
  double largest = 0;
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 4099) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!(x >= low && x <= high)) continue;
    const double expected = exact(static_cast<double>(x));
    const float nearest = std::fabs(static_cast<float>(expected));
    const double ulp = double(std::nextafter(nearest, kInfinity)) - double(nearest);
    largest = std::max(largest, std::abs(static_cast<double>(f(x)) - expected) / ulp);
  }
  return largest;
}

TEST_CASE("exp") {
  const auto exact = [](double x) { return std::exp(x); };
  CHECK(largest_ulps([](float x) { return simd_exp(x); }, exact, -86.9f, 88.72f) < 1.1);
  CHECK(simd_exp(0.0f) == 1.0f);
  CHECK(simd_exp(-kInfinity) == 0.0f);
  CHECK(simd_exp(-90.0f) == 0.0f);  // flushed
  CHECK(simd_exp(88.8f) == kInfinity);
  CHECK(simd_exp(kInfinity) == kInfinity);
  CHECK(std::isnan(simd_exp(NAN)));
}

TEST_CASE("sigmoid") {
  const auto exact = [](double x) { return 1 / (1 + std::exp(-x)); };
  CHECK(largest_ulps([](float x) { return simd_sigmoid(x); }, exact, -86.0f, 100.0f) < 2.6);
  CHECK(simd_sigmoid(-kInfinity) == 0.0f);
  CHECK(simd_sigmoid(kInfinity) == 1.0f);
}

TEST_CASE("tanh") {
  const auto exact = [](double x) { return std::tanh(x); };
  CHECK(largest_ulps([](float x) { return simd_tanh(x); }, exact, -1e30f, 1e30f) < 2);
  CHECK(simd_tanh(kInfinity) == 1.0f);
  CHECK(simd_tanh(-kInfinity) == -1.0f);
  CHECK(std::isnan(simd_tanh(NAN)));
}

TEST_CASE("erf") {
  const auto exact = [](double x) { return std::erf(x); };
  CHECK(largest_ulps([](float x) { return simd_erf(x); }, exact, -1e30f, 1e30f) < 1.1);
  CHECK(simd_erf(kInfinity) == 1.0f);
  CHECK(simd_erf(-kInfinity) == -1.0f);
  CHECK(std::isnan(simd_erf(NAN)));
}

TEST_CASE("log") {
  const auto exact = [](double x) { return std::log(x); };
  CHECK(largest_ulps([](float x) { return simd_log(x); }, exact, 1.2e-38f, 3.4e38f) < 1);
  CHECK(simd_log(1.0f) == 0.0f);
  CHECK(simd_log(0.0f) == -kInfinity);
  CHECK(simd_log(kInfinity) == kInfinity);
}

}  // namespace
}  // namespace fsdp::cpu
