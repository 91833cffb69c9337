// Which gradient norms are spikes: those above `factor` times the median of the norms of the last
// `window` steps that updated the model. The rule begins when there are so many. The limit of a
// step follows from the steps before it, so that the device can leave its update out
// (core/shard_args.h, ClipArgs) and nobody waits for its norm. PaLM (arXiv 2204.02311, 5.1) went
// back about 100 steps at a spike and left out 200 to 500 batches. Not here: what a run does about
// a spike (trainer.h).
#pragma once

#include <vector>

#include "tools/config/config.h"

namespace fsdp::tools {

class SpikeRule {
 public:
  // `norms`: where the last norms are kept, oldest first; what is there already counts. It outlives
  // this.
  SpikeRule(const config::SpikeSection& options, std::vector<double>& norms)
      : options_(options), norms_(norms) {
    trim();  // a run may go on with another window
  }

  double limit() const;   // of the next step; infinity: none
  void add(double norm);  // of a step that updated the model

 private:
  void trim();

  const config::SpikeSection options_;
  std::vector<double>& norms_;
};

}  // namespace fsdp::tools
