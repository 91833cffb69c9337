// How the rows of a step's batch become forward and backward passes: how many rows, how many
// micro-steps. Three keys say it, train.batch, train.rows_per_pass and train.micro_steps; what is
// left out follows from the others and the number of ranks. Not here: which rows a rank gets
// (tools/data/sampler.h).
#pragma once

#include <string>

#include "tools/config/config.h"

namespace fsdp::config {

struct StepShape {
  int64_t batch = 0;          // rows, over all ranks and micro-steps
  int64_t rows_per_pass = 0;  // 0: each rank splits its rows evenly between its micro-steps
  int64_t micro_steps = 1;
  int ranks = 1;

  int64_t passes() const;  // of all ranks; with rows_per_pass
  // "effective batch 64 = 1 row a pass x 4 ranks x 16 micro-steps"
  std::string text() const;
};

// Error, which begins with the place of a key, when the keys do not go together on so many ranks.
StepShape step_shape(const TrainConfig& config, int ranks);

}  // namespace fsdp::config
