// Lengths in tokens of rows of instructions: log-normal, 131 on average, at least 20.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace fsdp::test {

inline std::vector<uint32_t> lengths_of_rows(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(4.6, 0.75);
  std::vector<uint32_t> out(count);
  for (uint32_t& length : out) {
    length = static_cast<uint32_t>(std::max(20.0, std::exp(normal(random))));
  }
  return out;
}

}  // namespace fsdp::test
