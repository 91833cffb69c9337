// Fewer points of a curve, among them every extreme that a reader would see. Not here: reading the
// points (run_log.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp::tools {

struct CurvePoint {
  int64_t step = 0;
  double value = 0;   // finite
  double wall_s = 0;  // of the loop, since the run began
  bool operator==(const CurvePoint&) const = default;
};

// All points, or `most` of them at the most (4 or more): the first and the last one, and of each
// stretch between them the lowest and the highest one. They keep their values and their order.
std::vector<CurvePoint> downsample(const std::vector<CurvePoint>& points, size_t most);

}  // namespace fsdp::tools
