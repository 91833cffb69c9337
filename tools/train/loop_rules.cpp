// Contract: tools/train/loop_rules.h.
#include "tools/train/loop_rules.h"

#include <algorithm>
#include <limits>

namespace fsdp::tools {

int64_t batch_of_step(const BatchRanges& left_out, int64_t step) {
  int64_t batch = step;
  for (const auto& [first, end] : left_out) {
    if (batch >= first) batch += end - first;
  }
  return batch;
}

BatchRanges with_range(const BatchRanges& left_out, int64_t first, int64_t end) {
  BatchRanges out;
  for (const auto& range : left_out) {
    if (range[1] < first || range[0] > end) {
      out.push_back(range);
    } else {
      first = std::min(first, range[0]);
      end = std::max(end, range[1]);
    }
  }
  out.push_back({first, end});
  std::sort(out.begin(), out.end());
  return out;
}

int64_t samples_of_steps(const BatchRanges& left_out, int64_t steps,
                         const std::function<int64_t(int64_t batch)>& samples_before) {
  const int64_t next = steps == 0 ? 0 : batch_of_step(left_out, steps - 1) + 1;
  int64_t samples = samples_before(next);
  for (const auto& [first, end] : left_out) {
    if (first < next) samples -= samples_before(end) - samples_before(first);
  }
  return samples;
}

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
