// Contract: tools/predict/duration_text.h.
#include "tools/predict/duration_text.h"

#include <cmath>

#include <fmt/format.h>

namespace fsdp::tools {

// Rounded before the unit is chosen, so that 999.9 us are 1.00 ms.
std::string duration_text(double seconds) {
  if (!(seconds > 0)) return "0 s";
  const double digit = std::pow(10, std::floor(std::log10(seconds)) - 2);  // the last that is shown
  const double rounded = std::round(seconds / digit) * digit * (1 + 1e-12);
  const bool whole = rounded >= 1, thousandth = rounded >= 1e-3;
  const double number = rounded * (whole ? 1 : thousandth ? 1e3 : 1e6);
  const int decimals = number >= 100 ? 0 : number >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}", number, decimals, whole ? "s" : thousandth ? "ms" : "us");
}

}  // namespace fsdp::tools
