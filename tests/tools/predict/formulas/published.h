// What tests of formulas share: results as they were printed.
#pragma once

#include <fmt/format.h>

#include "tools/predict/formulas/formula.h"

namespace fsdp::test {

using Numbers = std::vector<std::string>;

// Lines of a formula in GB or GiB, to so many digits behind the point, with blanks between.
inline std::string printed(const std::string& name, const Numbers& numbers,
                           const std::vector<std::string>& lines, double unit, int digits) {
  const tools::FormulaResult result = tools::evaluate_formula(name, numbers);
  std::string out;
  for (const std::string& line : lines) {
    out += fmt::format("{}{:.{}f}", out.empty() ? "" : " ", result.bytes_of(line) / unit, digits);
  }
  return out;
}

constexpr double kGB = 1e9, kMiB = 1048576, kGiB = 1073741824;

}  // namespace fsdp::test
