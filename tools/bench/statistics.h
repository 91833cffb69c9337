// Order statistics of repeated timings.
#pragma once

#include <vector>

namespace fsdp::tools {

// Linear between neighbours: of an even number of values the median is the mean of the middle two.
// Error without values.
double quantile(std::vector<double> values, double at);

struct Spread {
  double least = 0, lower_quartile = 0, median = 0, upper_quartile = 0;

  double percent() const { return 100 * (upper_quartile - lower_quartile) / median; }
};
Spread spread_of(const std::vector<double>& values);

}  // namespace fsdp::tools
