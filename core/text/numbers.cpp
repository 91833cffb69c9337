// Contract: core/text/numbers.h.
#include "core/text/numbers.h"

#include <cmath>

#include <fmt/format.h>

namespace fsdp {

std::string format_count(int64_t value) {
  std::string digits = fmt::format("{}", value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

std::string format_value(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

std::string format_fixed(double value, int digits) {
  return std::isnan(value) ? "nan" : fmt::format("{:.{}f}", value, digits);
}

}  // namespace fsdp
