// The options that the per-commit test crosses pair by pair, all together: draws from their cross,
// which has millions of rows, until each pair of levels came hundreds of times.
// Requirements: S2.6.
#include <chrono>
#include <random>

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include "tests/support/memory_cases.h"

namespace fsdp::test {

TEST_CASE("a run without bytes takes what the run takes, to the byte: draws from the full cross") {
  constexpr int kCases = 8000;
  std::mt19937 random(15);
  const auto start = std::chrono::steady_clock::now();
  int cases = 0;
  while (cases < kCases) {
    MemoryLevels levels = {};
    for (size_t i = 0; i < levels.size(); ++i) {
      levels[i] = static_cast<int>(random() % static_cast<unsigned>(kMemorySizes[i]));
    }
    if (!go_together(levels)) continue;
    CAPTURE(fmt::format("{}", fmt::join(levels, " ")));
    check_memory(memory_case(levels));
    ++cases;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  MESSAGE(fmt::format("{} cases in {:.0f} s", cases, took.count()));
}

}  // namespace fsdp::test
