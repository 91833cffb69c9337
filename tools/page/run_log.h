// The curves of a run, from its metrics.jsonl. Read next: downsample.h. Not here: a line of the
// file (tools/report/metrics_line.h).
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tools/page/downsample.h"

namespace fsdp::tools {

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

}  // namespace fsdp::tools
