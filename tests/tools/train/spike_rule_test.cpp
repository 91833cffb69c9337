// The limit of a gradient norm against medians that were worked out by hand.
#include "tools/train/spike_rule.h"

#include <cmath>

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

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

}  // namespace
}  // namespace fsdp::tools
