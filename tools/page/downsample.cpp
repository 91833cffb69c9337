// Stretches of equal numbers of points. Contract: tools/page/downsample.h.
#include "tools/page/downsample.h"

#include <algorithm>

#include "core/error.h"

namespace fsdp::tools {

std::vector<CurvePoint> downsample(const std::vector<CurvePoint>& points, size_t most) {
  FSDP_CHECK(most >= 4, "downsample: expected at least 4 points, got {}", most);
  if (points.size() <= most) return points;
  const auto by_value = [](const CurvePoint& a, const CurvePoint& b) { return a.value < b.value; };
  const size_t inner = points.size() - 2, stretches = (most - 2) / 2;
  std::vector<CurvePoint> out = {points.front()};
  for (size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + 1 + static_cast<int64_t>(i * inner / stretches);
    const auto end = points.begin() + 1 + static_cast<int64_t>((i + 1) * inner / stretches);
    const auto [least, greatest] = std::minmax_element(begin, end, by_value);
    out.push_back(*std::min(least, greatest));
    if (least != greatest) out.push_back(*std::max(least, greatest));
  }
  out.push_back(points.back());
  return out;
}

}  // namespace fsdp::tools
