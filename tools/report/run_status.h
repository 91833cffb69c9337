// What `fsdp status` says of a run: whether it lives, where, how far it is, what it has survived.
// Of one that goes on, was killed, has failed or is done. Read next: run_reader.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/report/metrics_line.h"
#include "tools/report/run_costs.h"
#include "tools/report/run_reader.h"

namespace fsdp::tools {

struct RunStatus {
  std::filesystem::path folder;
  RunCondition condition = {};
  Json arguments = {}, metrics = {}, last_checkpoint = {};  // null: the run has no such file
  std::optional<RunProgress> progress = {};
  std::vector<Json> failures = {};  // the last ones
  LogEnd log = {};

  std::optional<double> step() const;
  std::optional<double> steps() const;  // of the whole run
  std::optional<double> seconds_left() const;
  int64_t durable_step() const;  // 0: none
};
// Error for a folder that is none of a run.
RunStatus read_run_status(const std::filesystem::path& folder, double now);

std::string describe(const RunStatus& status, double now);  // some lines
Json to_json(const RunStatus& status);

}  // namespace fsdp::tools
