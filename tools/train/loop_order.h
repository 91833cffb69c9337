// When the loop of a run evaluates beside its steps: of the trainer, and of what predicts its
// memory (tools/predict/predicted_run.h), which must meet the same calls in the same order.
#pragma once

#include <cstdint>

namespace fsdp::tools {

struct LoopOrder {
  int64_t steps = 0;
  int64_t eval_every = 0;  // 0: only at the end

  // With `done` steps behind it. After the last one it evaluates anyway.
  bool evaluates_between(int64_t done) const {
    return eval_every > 0 && done > 0 && done < steps && done % eval_every == 0;
  }
};

}  // namespace fsdp::tools
