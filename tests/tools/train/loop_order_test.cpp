// When a run evaluates between its steps.
#include "tools/train/loop_order.h"

#include <vector>

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

TEST_CASE("loop order: evaluations lie between steps, never before the first or after the last") {
  const auto between = [](const LoopOrder& order) {
    std::vector<int64_t> out;
    for (int64_t done = 0; done <= order.steps + 1; ++done) {
      if (order.evaluates_between(done)) out.push_back(done);
    }
    return out;
  };
  CHECK(between({.steps = 6, .eval_every = 2}) == std::vector<int64_t>{2, 4});
  CHECK(between({.steps = 7, .eval_every = 2}) == std::vector<int64_t>{2, 4, 6});
  CHECK(between({.steps = 6}).empty());
}

}  // namespace
}  // namespace fsdp::tools
