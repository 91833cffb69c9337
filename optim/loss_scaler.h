// Dynamic loss scaling for f16: the loss is multiplied by a scale that is halved when gradients
// overflow and doubled when they have not for a while. All of it on the device; the host reads the
// scale one step late. Sources: torch.amp.GradScaler; fairseq optim/dynamic_loss_scaler.py.
// The order in a step: loss with scale(); reduce, with the overflow flag agreed by all ranks;
// Clipper::measure (unscales, sets skip); update(skip); optimizer, which does nothing when skipped.
#pragma once

#include <array>
#include <cstdint>

#include "core/shard_values.h"
#include "core/tensor.h"

namespace fsdp::optim {

struct LossScalerOptions {
  double initial = 0;  // 0: no scaling
  LossScaleRule rule;

  static LossScalerOptions torch();
  // The window is counted in updates: 2^14 / ranks / micro-steps, rounded down.
  static LossScalerOptions fairseq(int ranks, int64_t micro_steps);
};

// What a scaler has seen, to go on from there.
struct LossScalerState {
  float scale = 1;
  std::array<int32_t, 3> counters = {};  // see LossScaleArgs
  int32_t aborted = 0;
  bool operator==(const LossScalerState&) const = default;
};

class LossScaler {
 public:
  LossScaler(Backend& backend, const LossScalerOptions& options);

  // `overflow`: why this step was skipped, a StepSkip.
  void update(const Tensor& overflow);  // (), i32

  LossScalerState state() const;  // waits
  void restore(const LossScalerState& state);

  const Tensor& scale() const { return scale_; }        // (), f32
  const Tensor& counters() const { return counters_; }  // (3), i32: see LossScaleArgs
  const Tensor& aborted() const { return aborted_; }    // (), i32: 1 once the minimum is reached

 private:
  LossScaleRule rule_;
  Tensor scale_;
  Tensor counters_;
  Tensor aborted_;
};

}  // namespace fsdp::optim
