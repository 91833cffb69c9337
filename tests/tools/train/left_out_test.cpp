// Steps and batches against the list of batches that is left when the ranges are struck out.
#include "tools/train/left_out.h"

#include <algorithm>

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

std::vector<int64_t> batches_left(const BatchRanges& out, int64_t end) {
  std::vector<int64_t> left;
  for (int64_t batch = 0; batch < end; ++batch) {
    const bool gone = std::any_of(out.begin(), out.end(), [&](const auto& range) {
      return batch >= range[0] && batch < range[1];
    });
    if (!gone) left.push_back(batch);
  }
  return left;
}

TEST_CASE("left out: the batch of a step is that of the list without the ranges") {
  for (const BatchRanges& out :
       {BatchRanges{}, BatchRanges{{0, 1}}, BatchRanges{{3, 5}, {6, 7}, {9, 20}}}) {
    const std::vector<int64_t> left = batches_left(out, 40);
    for (size_t step = 0; step < left.size(); ++step) {
      CHECK(batch_of_step(out, static_cast<int64_t>(step)) == left[step]);
    }
  }
}

TEST_CASE("left out: ranges that touch become one") {
  CHECK(with_range({}, 4, 6) == BatchRanges{{4, 6}});
  CHECK(with_range({{4, 6}}, 1, 2) == BatchRanges{{1, 2}, {4, 6}});
  CHECK(with_range({{4, 6}}, 6, 8) == BatchRanges{{4, 8}});
  CHECK(with_range({{1, 2}, {4, 6}, {9, 10}}, 2, 7) == BatchRanges{{1, 7}, {9, 10}});
  CHECK(with_range({{4, 6}}, 4, 9) == BatchRanges{{4, 9}});  // back to the same checkpoint
}

// Batches of 3, and of 1 at the end of each epoch of 4.
TEST_CASE("left out: samples that were trained on, also across a short batch") {
  const auto rows = [](int64_t batch) { return batch % 4 == 3 ? 1 : 3; };
  const auto before = [&](int64_t batch) {
    int64_t sum = 0;
    for (int64_t b = 0; b < batch; ++b) sum += rows(b);
    return sum;
  };
  const BatchRanges out = {{1, 2}, {3, 6}};
  int64_t sum = 0;
  for (int64_t steps = 0; steps < 20; ++steps) {
    CHECK(samples_of_steps(out, steps, before) == sum);
    sum += rows(batch_of_step(out, steps));
  }
}

}  // namespace
}  // namespace fsdp::tools
