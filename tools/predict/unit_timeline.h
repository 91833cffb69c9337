// In which order one step gathers, computes with and reduces its units, from the plan alone: the
// rules of comm/fsdp/fully_sharded.h over again, for a model whose modules run in the order of
// unit_table.h, also again in backward (recompute). A test compares it with what real steps do. Not
// here: times and streams (a trace).
#pragma once

#include <string>
#include <vector>

#include "tools/predict/unit_table.h"

namespace fsdp::tools {

struct PlannedCall {
  size_t unit = 0;
  std::string kind;   // "all_gather"
  int64_t bytes = 0;  // of the full buffer
};

// What the host issues between one computation and the next.
struct StepRow {
  std::vector<PlannedCall> gathers;
  std::string compute;  // "forward blocks.2"; "" when compute waits for the gathers
  size_t unit = 0;      // of compute
  std::vector<PlannedCall> reduces;
};
// Whether the timeline's rules hold: token and position table are not units of their own, which
// would be used within each other.
bool has_timeline(const std::vector<UnitRow>& units);
// All micro-steps of a step, one after the other.
std::vector<std::vector<StepRow>> step_timeline(const std::vector<UnitRow>& units,
                                                const comm::FsdpOptions& options,
                                                comm::GroupSizes groups);

// Texts of several lines: the calls and bytes of each collective in a step; and the rows of a
// micro-step, of many units the first and the last ones.
std::string format_traffic(const std::vector<std::vector<StepRow>>& micro_steps);
std::string format_timeline(const std::vector<UnitRow>& units, const std::vector<StepRow>& rows);

}  // namespace fsdp::tools
