// The curves of a run, from its metrics.jsonl, and fewer points of them. Not here: a line of the
// file (tools/report/metrics_line.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::tools {

struct CurvePoint {
  int64_t step = 0;
  double value = 0;   // finite
  double wall_s = 0;  // of the loop, since the run began
  bool operator==(const CurvePoint&) const = default;
};

struct Curve {
  std::string key;                       // in metrics.jsonl
  std::string name;                      // for people
  std::vector<CurvePoint> points = {};   // steps ascend
  std::vector<int64_t> not_finite = {};  // steps whose value is none
};

struct RunLog {
  std::vector<Curve> curves;
  int64_t foreign = 0;  // lines that no run has written whole

  const Curve& curve(std::string_view key) const;
};
// The curves without points where there is no such file. A step that stands there twice was done
// again: its last line counts, and the lines of later steps before it do not.
RunLog read_run_log(const std::filesystem::path& file);

// All points, or `most` of them at the most (4 or more): the first and the last one, and of each
// stretch between them the lowest and the highest one. They keep their values and their order.
std::vector<CurvePoint> downsample(const std::vector<CurvePoint>& points, size_t most);

}  // namespace fsdp::tools
