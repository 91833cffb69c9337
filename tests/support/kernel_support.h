// What the tests of CPU kernels share: the same run on 1, 2 and 3 threads, and errors against a
// plain reference in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/tensors.h"

namespace fsdp::test {

using Values = std::vector<double>;

constexpr DType kFloatingTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};

inline cpu::CpuOptions with_threads(int threads) {
  cpu::CpuOptions options;
  options.threads = threads;
  return options;
}

// run(backend) -> several results, as doubles. They must be the same bits on 1, 2 and 3 threads.
template <typename Run>
std::vector<Values> on_any_threads(Run run) {
  cpu::CpuBackend one(with_threads(1));
  std::vector<Values> expected = run(one);
  for (const int threads : {2, 3}) {
    cpu::CpuBackend backend(with_threads(threads));
    const bool same = run(backend) == expected;
    CHECK_MESSAGE(same, "results differ on ", threads, " threads");
  }
  return expected;
}

// Largest |actual - expected| / (|expected| + floor); infinite on NaN or a wrong size.
inline double largest_error(const Values& actual, const Values& expected, double floor = 1) {
  if (actual.size() != expected.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    const double error = std::abs(actual[i] - expected[i]) / (std::abs(expected[i]) + floor);
    if (!(error <= largest)) largest = std::isnan(error) ? INFINITY : error;
  }
  return largest;
}

// Error allowed to one result of `dtype` whose accumulation took `terms` roundings.
inline double tolerance(DType dtype, double terms = 8) {
  return unit_roundoff(dtype) + terms * unit_roundoff(accumulation_dtype(dtype));
}

}  // namespace fsdp::test
