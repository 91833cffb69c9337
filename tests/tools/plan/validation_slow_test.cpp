// Constants that were fitted on other rows than those that are predicted, for every set.
// Requirements: S2.6.
#include <doctest/doctest.h>

#include "tests/support/validation_bars.h"

namespace fsdp::tools {
namespace {

TEST_CASE("validation: llm-foundry and vTrain, one model size left out") {
  const Validation validation = validate(test::rows_of(""), Fit::kLeaveOneSize);
  REQUIRE(validation.sets.size() == 8);
  for (const SetResult& set : validation.sets) {
    CAPTURE(set.name);
    CHECK(set.usable == set.rows);
    CHECK(set.fitted == !set.name.starts_with("torchtitan"));  // which has one size
    if (set.name.starts_with("mosaicml")) {
      CHECK(set.median <= 0.06);
      CHECK(set.within_10 >= 0.9);
    }
    if (set.name.starts_with("vtrain")) CHECK(set.median <= 0.1);
  }
}

}  // namespace
}  // namespace fsdp::tools
