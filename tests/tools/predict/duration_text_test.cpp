// Durations: three digits and a unit.
#include "tools/predict/duration_text.h"

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

TEST_CASE("durations: three digits, in the unit that leaves one to three before the point") {
  CHECK(duration_text(9.68365) == "9.68 s");
  CHECK(duration_text(299.7) == "300 s");
  CHECK(duration_text(1234) == "1230 s");
  CHECK(duration_text(0.0123456) == "12.3 ms");
  CHECK(duration_text(0.5) == "500 ms");
  CHECK(duration_text(845.3e-6) == "845 us");
  CHECK(duration_text(2e-6) == "2.00 us");
  CHECK(duration_text(3.456e-9) == "0.00 us");
  CHECK(duration_text(0) == "0 s");
}

TEST_CASE("durations: what rounds up to the next unit is in that unit") {
  CHECK(duration_text(999.9e-6) == "1.00 ms");
  CHECK(duration_text(0.9996) == "1.00 s");
  CHECK(duration_text(9.996) == "10.0 s");
  CHECK(duration_text(99.96e-3) == "100 ms");
  CHECK(duration_text(1) == "1.00 s");
  CHECK(duration_text(1e-3) == "1.00 ms");
}

}  // namespace
}  // namespace fsdp::tools
