// Which unit is named, for every place in which a difference can begin.
#include "tools/run/difference_origin.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

const std::vector<std::string> kUnits = {"blocks.2", "blocks.1", "blocks.0", "root"};

// Of step 12: hashes of these units differ, by their numbers.
ComparedStep step_with(const std::vector<size_t>& weights, const std::vector<size_t>& gradients) {
  ComparedStep step = {.step = 12};
  step.recorded.resize(kUnits.size());
  step.computed.resize(kUnits.size());
  for (const size_t unit : weights) step.computed[unit].weights = 1;
  for (const size_t unit : gradients) step.computed[unit].gradient = 1;
  return step;
}

TEST_CASE("difference origin: none") { CHECK(origin_of(kUnits, step_with({}, {})) == ""); }

TEST_CASE("difference origin: in backward it is the unit that backward computes first") {
  const std::string expected =
      "the difference began in unit blocks.1: of step 12 its gradient is the first in backward "
      "that differs; weights are equal";
  CHECK(origin_of(kUnits, step_with({}, {1, 2, 3})) == expected);
  CHECK(origin_of(kUnits, step_with({}, {1})) == expected);
}

TEST_CASE("difference origin: where all gradients differ, the loss says whether it was forward") {
  ComparedStep step = step_with({}, {0, 1, 2, 3});
  CHECK(origin_of(kUnits, step) ==
        "the difference began in the forward pass of step 12, or in unit blocks.2, the first in "
        "backward: weights are equal, the gradients of all units are not");
  step.equal_loss = false;
  CHECK(origin_of(kUnits, step) ==
        "the difference began in the forward pass of step 12: weights are equal, the gradients of "
        "all units are not");
  step.equal_loss = true;
  CHECK(test::contains(origin_of(kUnits, step), "in unit blocks.2: of step 12 its gradient"));
}

TEST_CASE("difference origin: weights differ before their gradients do") {
  ComparedStep step = step_with({1}, {0, 1, 2, 3});
  step.equal_loss = false;
  CHECK(origin_of(kUnits, step) ==
        "the difference began in unit blocks.1: weights differ before step 12; the gradients of "
        "step 11 are equal, so its update has done it, or the optimizer's state");
  step.before = StepBefore::kCheckpoint;
  CHECK(test::contains(origin_of(kUnits, step),
                       "step 12; they are those of the checkpoint that the replay began with"));
  step.before = StepBefore::kNoHashes;
  CHECK(test::contains(origin_of(kUnits, step), "; there are no hashes of step 11"));
  CHECK(test::contains(origin_of(kUnits, step_with({0, 3}, {})),
                       "began in units blocks.2, root: weights differ"));
  CHECK(test::contains(origin_of(kUnits, step_with({0, 1, 2, 3}, {})), "began in all units: "));
}

}  // namespace
}  // namespace fsdp::tools
