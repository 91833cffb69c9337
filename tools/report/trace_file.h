// Reads the timeline that a run has written: trace.rank<r>.json of its directory.
// Not here: how a timeline is recorded and written (core/trace.h), how it is drawn
// (tools/report/step_picture.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/trace.h"

namespace fsdp::tools {

// The events of one rank in the order of the file, without its memory curves. Error when the
// folder is not there or has no trace of that rank, and when the file is no trace.
std::vector<TraceEvent> read_trace(const std::filesystem::path& run_directory, int rank);

// One step of one rank.
struct StepTimeline {
  int64_t step = 0;   // its number; 0: the timeline has no step
  int64_t steps = 0;  // in the file
  int64_t begin_ns = 0, end_ns = 0;
  std::vector<TraceEvent> events;    // that lie in the step, or reach into it
  std::vector<TraceSample> samples;  // in it; before them the last one of each curve, at its begin
};
// The last step. Only its events are kept: those of a long run are larger than memory. So the file
// is as core/trace.cpp writes it, an event a line. Error as of read_trace.
StepTimeline read_last_step(const std::filesystem::path& run_directory, int rank);

}  // namespace fsdp::tools
