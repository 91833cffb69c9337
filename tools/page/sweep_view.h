// What the page shows of a sweep: its table, and how its speed grows with the ranks. Not here: the
// runs of its cases (run_view.h), how the table is made (tools/sweep).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/io/json.h"

namespace fsdp::tools {

struct ScalingPoint {
  std::string name;  // of the case
  double ranks = 0;
  double speed_up = 0;
};
// Cases that differ in their number of ranks alone, and in what may have to follow it, by ranks: no
// two have the same.
struct ScalingSeries {
  std::string name;
  std::vector<ScalingPoint> points;
};

struct SweepView {
  std::filesystem::path folder;
  Json table;                               // table.json
  std::vector<std::filesystem::path> runs;  // the first run of each case that has one
  std::map<std::filesystem::path, std::string> ends = {};  // of the runs: why a case did not run
  std::vector<ScalingSeries> scaling = {};                 // empty: none has two cases
  double ideal = 1;                                        // speed-up for each rank
};

bool is_sweep_folder(const std::filesystem::path& folder);
// Error for a table that is not one of a sweep.
SweepView read_sweep_view(const std::filesystem::path& folder);

}  // namespace fsdp::tools
