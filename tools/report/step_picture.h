// One training step as a picture (SVG): a lane per stream, a box for what a unit does there, and
// hatched what no computation hides. Made from the timeline of one rank.
// Not here: reading a timeline (tools/report/trace_file.h); sums over a run
// (tools/report/communication_overlap.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/trace.h"

namespace fsdp::tools {

struct PictureOptions {
  int64_t step = 0;   // counted from 1; 0: the last
  int width = 960;    // pixels
  std::string title;  // of the picture, before the number of the step
};

struct StepPicture {
  std::string svg;
  int64_t step = 0;
  int64_t step_ns = 0;
  int64_t compute_ns = 0;        // each moment once
  int64_t communication_ns = 0;  // each moment once
  int64_t exposed_ns = 0;        // of which, while this rank computed nothing
};

// Error when the timeline has no such step.
StepPicture draw_step(const std::vector<TraceEvent>& events, const PictureOptions& options);

// As text of XML and HTML, within attributes too. Neither has control characters: "?".
std::string markup_text(const std::string& text);

}  // namespace fsdp::tools
