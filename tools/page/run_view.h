// What the page shows of one run: all that its directory has, also of a run that goes on, or that
// died without a last word. What is not there is empty, and has a line that says why. Read next:
// page.h. Not here: how it looks (page.js).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/page/run_log.h"
#include "tools/report/run_reader.h"
#include "tools/report/trace_file.h"

namespace fsdp::tools {

struct RunView {
  std::filesystem::path folder;
  std::string name;                             // unlike those of the other runs
  std::map<std::string, std::string> settings;  // of config.yaml: "train.lr" -> "0.0001"
  Json metrics, arguments, progress;            // null: the run has no such file
  RunLog log;
  StepTimeline step = {};                 // of rank 0
  std::string no_step = {};               // why there is none
  std::string units = {};                 // a table, as of fsdp explain
  std::string no_units = {};              // why there is none
  std::vector<int64_t> checkpoints = {};  // steps of the complete ones that are there
  std::string end_in_sweep = {};          // "failed: status 9: ..."; "": no sweep says so

  bool has_ended() const { return !metrics.is_null(); }
  int ranks() const;         // 0: not known
  double started() const;    // Unix time; 0: not known
  std::string call() const;  // the command line; "": not known
  // "ended: done", "running: step 3 ...", "killed: ...", as condition_of() says. `now`: Unix time.
  std::string state(double now) const;
};

// Error for a folder that is none. A file of it that cannot be read is an Error, too; a timeline
// or a configuration that says nothing to this program is not.
RunView read_run_view(const std::filesystem::path& folder);

// Ends of the paths that are unlike each other: "a/run1", "b/run1".
std::vector<std::string> distinct_names(const std::vector<std::filesystem::path>& folders);

}  // namespace fsdp::tools
