// Quantiles by sorting.
#include "tools/bench/statistics.h"

#include <algorithm>

#include "core/error.h"

namespace fsdp::tools {

double quantile(std::vector<double> values, double at) {
  FSDP_CHECK(!values.empty(), "[quantile] values: expected at least one");
  std::sort(values.begin(), values.end());
  const double place = at * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

Spread spread_of(const std::vector<double>& values) {
  return {.least = quantile(values, 0),
          .lower_quartile = quantile(values, 0.25),
          .median = quantile(values, 0.5),
          .upper_quartile = quantile(values, 0.75)};
}

}  // namespace fsdp::tools
