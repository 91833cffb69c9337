// Batches that are left out, evaluations between steps, spikes, and the end of the time.
#include "tools/train/loop_rules.h"

#include <algorithm>
#include <cmath>
#include <vector>

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

TEST_CASE("spike rule: nothing is a spike before the window is full, or without a factor") {
  std::vector<double> norms;
  SpikeRule rule({.factor = 3, .window = 3}, norms);
  for (const double norm : {1.0, 2.0}) {
    rule.add(norm);
    CHECK(std::isinf(rule.limit()));
  }
  rule.add(4);
  CHECK(rule.limit() == 6);
  std::vector<double> none;
  SpikeRule off({.factor = 0, .window = 1}, none);
  off.add(1);
  CHECK(none.empty());  // a checkpoint need not keep them
  CHECK(std::isinf(off.limit()));
}

TEST_CASE("spike rule: the median is of the last steps alone, of two middle ones their mean") {
  std::vector<double> norms = {9, 1};  // a run that goes on has them already
  SpikeRule rule({.factor = 2, .window = 4}, norms);
  rule.add(5);
  rule.add(3);
  CHECK(rule.limit() == 2 * 4);  // 1 3 5 9
  rule.add(100);
  CHECK(norms == std::vector<double>{1, 5, 3, 100});
  CHECK(rule.limit() == 2 * 4);
  rule.add(100);
  CHECK(rule.limit() == 2 * 52.5);  // 3 5 100 100
  SpikeRule shorter({.factor = 2, .window = 1}, norms);
  CHECK(norms == std::vector<double>{100});
}

TEST_CASE("job time: two saves, the longest step and the grace are kept") {
  JobTime time(1000, 5, 10);
  CHECK(time.needed_s() == 25);
  time.step_took(3);
  time.step_took(1);
  CHECK(time.needed_s() == 28);
  CHECK(!time.is_over(972));
  CHECK(time.is_over(972.5));
  CHECK(time.left_s(972.5) == 27.5);
  time.save_took(2);  // shorter than the guess
  CHECK(time.needed_s() == 12);
  CHECK(!time.is_over(987));
}

TEST_CASE("job time: without an end it is never over") { CHECK(!JobTime(0, 5, 10).is_over(1e10)); }

}  // namespace
}  // namespace fsdp::tools
