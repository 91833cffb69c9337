// Contract: tools/train/spike_rule.h.
#include "tools/train/spike_rule.h"

#include <algorithm>
#include <limits>

namespace fsdp::tools {

double SpikeRule::limit() const {
  const auto window = static_cast<size_t>(options_.window);
  if (options_.factor == 0 || norms_.size() < window) {
    return std::numeric_limits<double>::infinity();
  }
  std::vector<double> sorted = norms_;
  const size_t middle = window / 2;
  const auto at = [&](size_t i) {
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(i), sorted.end());
    return sorted[i];
  };
  const double upper = at(middle);
  const double median = window % 2 == 1 ? upper : (upper + at(middle - 1)) / 2;
  return options_.factor * median;
}

void SpikeRule::add(double norm) {
  if (options_.factor == 0) return;
  norms_.push_back(norm);
  trim();
}

void SpikeRule::trim() {
  const auto window = static_cast<size_t>(options_.window);
  if (norms_.size() <= window) return;
  norms_.erase(norms_.begin(), norms_.end() - static_cast<std::ptrdiff_t>(window));
}

}  // namespace fsdp::tools
