// The live memory of a rank over one step as a picture (SVG): its categories one on the other, and
// the moment when they are most. Not here: the streams of the same step
// (tools/report/step_picture.h), which the axis of time is the same as.
#pragma once

#include <cstdint>
#include <string>

#include "tools/report/trace_file.h"

namespace fsdp::tools {

struct MemoryPicture {
  std::string svg;
  int64_t peak_bytes = 0;  // of all categories together
  int64_t peak_ns = 0;     // since the step began
  std::string phase;       // in which it is: "forward"; "": none
};

// Of a step with samples. `width`: of the picture, in pixels.
MemoryPicture draw_memory(const StepTimeline& step, int width);

}  // namespace fsdp::tools
