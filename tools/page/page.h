// `fsdp report`: runs, tables of sweeps, and plans, as one HTML file that needs nothing else, and
// never asks a network. Read next: run_view.h, page_data.h. Not here: a run's curves for other
// programs (event_file.h).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/page/run_view.h"

namespace fsdp::tools {

constexpr size_t kMostRuns = 40;  // of a page

// A folder of fsdp sweep.
struct SweepView {
  std::filesystem::path folder;
  Json table;                               // table.json
  std::vector<std::filesystem::path> runs;  // the first run of each case that has one
  std::map<std::filesystem::path, std::string> ends = {};  // of the runs: why a case did not run
  // Of the cases that have a case.yaml: "train.lr" -> "0.0001"; the ranks are none.
  std::map<std::string, std::map<std::string, std::string>> settings = {};
};

// A file that `fsdp plan --json` wrote.
struct PlanView {
  std::filesystem::path file;
  Json plan;
};

struct RunsReport {
  std::vector<RunView> runs;
  std::vector<SweepView> sweeps;
  std::vector<PlanView> plans;
  std::vector<std::filesystem::path> left_out;  // runs of sweeps that are too many
};
// Of directories of runs and of sweeps, and files of plans. Error for any other, and for more than
// kMostRuns runs.
RunsReport read_report(const std::vector<std::filesystem::path>& folders);

// `now`: Unix time.
std::string page_html(const RunsReport& report, double now);

// Error when there is something at `path` that is no page of ours.
void check_page_path(const std::filesystem::path& path);

}  // namespace fsdp::tools
