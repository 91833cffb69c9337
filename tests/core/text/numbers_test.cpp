// Commas between thousands.
#include "core/text/numbers.h"

#include <limits>

#include <doctest/doctest.h>

namespace fsdp {
namespace {

TEST_CASE("a count has a comma before every three digits") {
  CHECK(format_count(7) == "7");
  CHECK(format_count(999) == "999");
  CHECK(format_count(1000) == "1,000");
  CHECK(format_count(1234567) == "1,234,567");
  CHECK(format_count(-999) == "-999");
  CHECK(format_count(-1000) == "-1,000");
}

TEST_CASE("a value has every digit, and no sign where it is no number") {
  CHECK(format_value(0.1) == "0.1");
  CHECK(format_value(-std::numeric_limits<double>::infinity()) == "-inf");
  CHECK(format_value(-std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(format_fixed(-std::numeric_limits<double>::quiet_NaN(), 4) == "nan");
  CHECK(format_fixed(2.00006, 4) == "2.0001");
  CHECK(format_fixed(-std::numeric_limits<double>::infinity(), 4) == "-inf");
}

}  // namespace
}  // namespace fsdp
