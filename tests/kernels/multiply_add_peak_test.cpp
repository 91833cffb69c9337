// The peak of a processor: above what any loop reaches that has to load and store.
#include "kernels/cpu/multiply_add_peak.h"

#include <chrono>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::cpu {
namespace {

// FLOP/s of y = 0.999 y + x on numbers that the first cache holds: the best of some attempts.
double loaded_flops_per_s() {
  constexpr int kElements = 1024, kRounds = 2000;
  std::vector<float> x(kElements, 0.001f), y(kElements, 1);
  double best = 0;
  for (int attempt = 0; attempt < 20; ++attempt) {
    const auto start = std::chrono::steady_clock::now();
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kElements; ++i) y[i] = 0.999f * y[i] + x[i];
    }
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2.0 * kElements * kRounds / passed.count());
  }
  CHECK(y[0] == doctest::Approx(1));
  return best;
}

}  // namespace

TEST_CASE("multiply-add peak: a library's product cannot be faster; narrow numbers are no slower") {
  ThreadTeam one(1);
  const auto best = [&](DType dtype) {  // other programs may take the processor in between
    double rate = 0;
    for (int i = 0; i < 10; ++i) {
      const std::optional<double> peak = multiply_add_peak(one, dtype, 0.005);
      if (peak) rate = std::max(rate, *peak);
    }
    return rate;
  };
  const double f32 = best(DType::kF32), f64 = best(DType::kF64), bf16 = best(DType::kBF16);
  CHECK(f32 > loaded_flops_per_s());
  CHECK(f32 > 1.2 * f64);
  CHECK(f32 < 5 * f64);  // 2, but for what other programs take
  CHECK((bf16 == 0 || bf16 > 0.5 * f32));
  CHECK(test::contains(test::error_of([&] { multiply_add_peak(one, DType::kI32, 0.005); }),
                       "expected a floating dtype, got i32"));
}

}  // namespace fsdp::cpu
