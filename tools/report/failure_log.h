// failures.jsonl in the run directory: a line for each time that the run was interrupted, with its
// cause and its cost. The next start writes it, because it alone knows what was lost. The sums over
// all lines are those of metrics.json. Read next: run_costs.h, the sums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/io/json.h"
#include "tools/launch/end_note.h"

namespace fsdp::tools {

struct Failure {
  EndNote end;             // when, where, why
  int64_t restart = 0;     // of the launcher: the start that goes on
  int64_t step = 0;        // the last one that was seen
  int64_t steps_lost = 0;  // of them, done again
  double lost_s = 0, detection_s = 0, pause_s = 0, restart_s = 0;  // as in RunCosts
};
// Of a thousand lines the older half becomes one line with their number and their sums. A file that
// cannot be written or read is no reason to end a run.
void append_failure(const std::filesystem::path& run_directory, const Failure& failure,
                    size_t most = 1000);
// The run does steps again: what the last line lacks.
void complete_failure(const std::filesystem::path& run_directory, double pause_s, double restart_s);

// The lines, the oldest first; those that are no JSON are left out.
std::vector<Json> read_failures(const std::filesystem::path& run_directory);

}  // namespace fsdp::tools
