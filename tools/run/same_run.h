// Whether a run that goes on is the one that its checkpoint belongs to: the same model, batch,
// order of sequences and dropped elements. Not here: keys that changed (tools/checkpoint/resume.h),
// the text and the values (TrainingRun::restore_state).
#pragma once

#include <string>

#include "models/config.h"
#include "tools/config/step_shape.h"

namespace fsdp::tools {

struct ContinuedRun {
  const models::ModelConfig& model;
  double adapter_dropout = 0;
  bool order_follows_ranks = false;  // data.shuffle_rule: torch
  config::StepShape shape, before;   // now, and of the run that left the checkpoint
  std::string model_before;          // config.json
};

// Whether dropout, which is keyed by micro-steps, would drop other elements than before.
bool drops_other_elements(const ContinuedRun& run);
// Error that says what differs and that --resume-with-changes continues anyway.
void check_same_run(const ContinuedRun& run);

}  // namespace fsdp::tools
