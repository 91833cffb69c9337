// The order in which one training step gathers, computes with and reduces its units, as rows with
// predicted times: from the calls that a run without bytes issued (meta_run.h).
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
  double begin_ms = 0, end_ms = 0;
};

// What the host issues between one computation and the next.
struct StepRow {
  std::vector<PlannedCall> gathers = {};
  std::string pass;  // "forward", "backward", "recompute"; "" where compute waits for the gathers,
                     // and of what comes after the last computation
  size_t unit = 0;   // that computes
  std::string compute = {};  // "forward blocks.2"
  std::vector<PlannedCall> reduces = {};
  double begin_ms = 0, end_ms = 0;  // of the computation, since the step began; with its waits
  double busy_ms = 0;               // of these without the waits
};

// Where the time of a step goes: what computes, what collectives on the compute stream take
// (norms, flags, losses), and the rest, in which it waits for gathers and reductions.
struct StepTime {
  double step_ms = 0, compute_ms = 0, scalars_ms = 0, wait_ms = 0;
};
StepTime step_time(const MetaRun& run);

// All micro-steps of a step, one after the other; of those alike all have the moments of the first.
// `units`: root first. Collectives on the compute
// stream (norms, flags, losses) are left out.
std::vector<std::vector<StepRow>> step_timeline(const std::vector<StepCall>& calls,
                                                const std::vector<UnitRow>& units);

// Texts of several lines: the calls, bytes and times of each collective in a step; where the time
// of a step goes; and the rows of a micro-step, of many units the first and the last ones.
std::string format_step_time(const StepTime& time);
std::string format_traffic(const std::vector<std::vector<StepRow>>& micro_steps);
std::string format_timeline(const std::vector<UnitRow>& units, const std::vector<StepRow>& rows);

}  // namespace fsdp::tools
