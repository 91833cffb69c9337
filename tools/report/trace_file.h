// Reads the timeline that a run has written: trace.rank<r>.json of its directory.
// Not here: how a timeline is recorded and written (core/trace.h), how it is drawn
// (tools/report/step_picture.h).
#pragma once

#include <filesystem>
#include <vector>

#include "core/trace.h"

namespace fsdp::tools {

// The events of one rank in the order of the file, without its memory curves. Error when the
// folder is not there or has no trace of that rank, and when the file is no trace.
std::vector<TraceEvent> read_trace(const std::filesystem::path& run_directory, int rank);

}  // namespace fsdp::tools
