// Every index once, on any number of threads, and what one throws.
#include "tools/plan/each_index.h"

#include <atomic>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

TEST_CASE("each index: each once") {
  for (const size_t threads : {0, 1, 7}) {
    std::vector<std::atomic<int>> calls(100);
    for_each_index(
        calls.size(), [&](size_t i) { ++calls[i]; }, threads);
    for (const std::atomic<int>& each : calls) CHECK(each == 1);
  }
  for_each_index(0, [](size_t) { FAIL("there is none"); });
}

TEST_CASE("each index: what is thrown arrives, and no new ones begin") {
  std::atomic<int> calls = 0;
  CHECK_THROWS_WITH_AS(for_each_index(
                           1000000,
                           [&](size_t) {
                             ++calls;
                             throw std::runtime_error("no");
                           },
                           3),
                       "no", std::runtime_error);
  CHECK(calls <= 3);
}

}  // namespace
}  // namespace fsdp::tools
