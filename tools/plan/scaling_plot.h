// How a plan scales, as a picture (SVG): tokens/s of all GPUs over their number, both as
// logarithms, beside what as many times the GPUs as in the first job would give.
#pragma once

#include <string>
#include <vector>

namespace fsdp::tools {

struct PlanPoint {
  int gpus = 0;
  double tokens_per_s = 0;  // of all GPUs
  std::string label;        // what the job is, for whoever points at it
};

// The points by rising number of GPUs; of several with the same number the fastest. "": fewer than
// two numbers.
std::string scaling_plot(std::vector<PlanPoint> points);

}  // namespace fsdp::tools
