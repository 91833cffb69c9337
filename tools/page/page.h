// `fsdp report`: runs, tables of sweeps, and plans, as one HTML file that needs nothing else, and
// never asks a network. Read next: run_view.h, page_data.h. Not here: a run's curves for other
// programs (event_file.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/page/run_view.h"
#include "tools/page/sweep_view.h"

namespace fsdp::tools {

constexpr size_t kMostRuns = 40;  // of a page

// A file that `fsdp plan --json` wrote.
struct PlanView {
  std::filesystem::path file;
  Json plan;
};

struct Report {
  std::vector<RunView> runs;
  std::vector<SweepView> sweeps;
  std::vector<PlanView> plans;
  std::vector<std::filesystem::path> left_out;  // runs of sweeps that are too many
};
// Of directories of runs and of sweeps, and files of plans. Error for any other, and for more than
// kMostRuns runs.
Report read_report(const std::vector<std::filesystem::path>& folders);

// `now`: Unix time.
std::string page_html(const Report& report, double now);

// Error when there is something at `path` that is no page of ours.
void check_page_path(const std::filesystem::path& path);

}  // namespace fsdp::tools
