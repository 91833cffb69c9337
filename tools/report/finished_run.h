// A run that has ended, read back from its directory: its settings and its metrics.json. Of one
// that has not, what its other files have of them. Not here: what is made of them (compare_runs.h,
// run_columns.h).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "core/io/json.h"

namespace fsdp::tools {

struct FinishedRun {
  std::filesystem::path folder;
  std::map<std::string, std::string> settings;  // of config.yaml: "train.lr" -> "0.0001"
  Json metrics;                                 // metrics.json
  std::string state = {};  // "running", "killed", "failed": it has no metrics.json; "": it has
};
// Error when the folder is not there or is not the directory of a run that has ended.
FinishedRun read_finished_run(const std::filesystem::path& folder);
// The same of any run. What is known at its end alone is missing in the metrics of one that has not
// ended; the rest is of its last logged step.
FinishedRun read_run(const std::filesystem::path& folder);

// "train.lr" -> "0.0001", of a config.yaml.
std::map<std::string, std::string> read_settings(const std::filesystem::path& file);

// The number at a path such as "/memory/ledger/total"; none when it is absent or null.
std::optional<double> number_at(const Json& json, const std::string& path);

}  // namespace fsdp::tools
