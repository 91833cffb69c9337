// The numbers of an ended run that a table may have as columns, by name: their unit, and where they
// stand in what the run has left behind. Read next: case_table.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/report/run_reader.h"

namespace fsdp::tools {

// What other runs are relative to: medians where it has several runs.
struct Baseline {
  double ranks = 1;
  double tokens_per_s = 0;
  double s_per_step = 0;
  double tokens_of_rank = 0;  // in a step
};
Baseline baseline_of(const std::vector<FinishedRun>& runs);

struct RunColumn {
  std::string name;  // "peak_memory"
  std::string head;  // for people, with its unit: "peak memory (MiB)"
  int digits = 0;    // behind the point, at least
  // A number in this unit, a text, or null: the run has no such thing. Without this function the
  // run has none; whoever makes the table knows it.
  std::function<Json(const FinishedRun&)> value = {};
  // The same, of what is relative to a baseline.
  std::function<Json(const FinishedRun&, const Baseline&)> relative = {};
};

// By its name, or by a path into metrics.json: "/memory/ledger/total". Error that names the nearest
// one for others.
RunColumn run_column(const std::string& name);
std::vector<std::string> run_column_names();

double median(std::vector<double> values);  // 0: there are none

// For people: "0.0123", "12,345", "-" for null.
std::string text_of(const Json& value, int digits);

}  // namespace fsdp::tools
