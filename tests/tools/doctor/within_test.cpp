// A look that ends, one that throws, and one that does not answer.
// Requirements: S1.23.
#include "tools/doctor/within.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools::doctor {
namespace {

using std::chrono::milliseconds;

TEST_CASE("within: a result in time, an error in time") {
  CHECK(within<int>(milliseconds(10'000), [] { return 7; }) == 7);
  CHECK(test::error_of([] { within<int>(milliseconds(10'000), []() -> int { fail("no"); }); }) ==
        "no");
}

TEST_CASE("within: a look that takes too long is left behind, with all that it touches") {
  const auto seen = std::make_shared<std::promise<int>>();
  std::future<int> later = seen->get_future();
  const auto open = std::make_shared<std::promise<void>>();
  CHECK_FALSE(within<int>(milliseconds(20), [seen, gate = open->get_future().share()] {
    gate.wait();
    seen->set_value(3);
    return 3;
  }));
  open->set_value();
  CHECK(later.get() == 3);
}

}  // namespace
}  // namespace fsdp::tools::doctor
