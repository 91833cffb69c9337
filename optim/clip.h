// Clipping by the global gradient norm, without a host wait.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "core/flat_layout.h"

namespace fsdp::optim {

class Clipper {
 public:
  // Runs on the backend of the gradients. `group`: ranks that hold different shards of one gradient
  // (null or one rank: nothing to add).
  // max_norm <= 0: measure only. power: 1, 2, 3, ... or infinity.
  Clipper(const std::vector<OptimizerShard>& shards, comm::Communicator* group, double max_norm,
          double power = 2);

  // Norm of the reduced gradients of all shards, padding excluded; sets the tensors below.
  // `loss_scale`: what the gradients were multiplied by; `overflow`: whether one was too large for
  // its dtype on any rank; null: neither is tested. Collective over the group.
  void measure(const Tensor* loss_scale = nullptr,  // (), f32
               const Tensor* overflow = nullptr);   // (), i32

  const Tensor& norm() const { return norm_; }  // (), f64: unscaled, before clipping
  const Tensor& coefficient() const {
    return coefficient_;
  }                                             // (): min(1, max / (norm + 1e-6)), unscales
  const Tensor& skip() const { return skip_; }  // (), i32: 1 when not finite or overflow

 private:
  // A gradient and what counts of it.
  struct Part {
    Tensor gradient;
    std::vector<std::pair<int64_t, int64_t>> spans;
    std::vector<int64_t> first_blocks;  // of the spans, with blocks_
    int64_t blocks = 0;                 // of the unit, over all shards
  };
  void sum_in_fixed_order();
  void sum_over_shards();

  std::vector<Part> parts_;
  comm::Communicator* group_;
  double max_norm_;
  double power_;
  Tensor power_sum_;  // (), f64
  Tensor blocks_;     // (blocks of all units), f64: undefined unless their order is fixed
  Tensor norm_;
  Tensor coefficient_;
  Tensor skip_;
};

}  // namespace fsdp::optim
