// The order in which one training step gathers, computes with and reduces its units, as rows: from
// the calls that a run without bytes issued (meta_run.h). Not here: times.
#pragma once

#include <string>
#include <vector>

#include "tools/predict/meta_run.h"
#include "tools/predict/unit_table.h"

namespace fsdp::tools {

struct PlannedCall {
  size_t unit = 0;
  std::string kind;   // "all_gather"
  int64_t bytes = 0;  // of the full buffer
};

// What the host issues between one computation and the next.
struct StepRow {
  std::vector<PlannedCall> gathers = {};
  std::string pass;  // "forward", "backward", "recompute"; "" where compute waits for the gathers,
                     // and of what comes after the last computation
  size_t unit = 0;   // that computes
  std::string compute = {};  // "forward blocks.2"
  std::vector<PlannedCall> reduces = {};
};
// All micro-steps of a step, one after the other. `units`: root first. Collectives on the compute
// stream (norms, flags, losses) are left out.
std::vector<std::vector<StepRow>> step_timeline(const std::vector<StepCall>& calls,
                                                const std::vector<UnitRow>& units);

// Texts of several lines: the calls and bytes of each collective in a step; and the rows of a
// micro-step, of many units the first and the last ones.
std::string format_traffic(const std::vector<std::vector<StepRow>>& micro_steps);
std::string format_timeline(const std::vector<UnitRow>& units, const std::vector<StepRow>& rows);

}  // namespace fsdp::tools
