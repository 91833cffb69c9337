// Clipping by the global gradient norm, without a host wait. Sums are made where the gradients are;
// what follows from them is decided on one backend, which may be another: the one that has the loss
// scale, and between whose ranks collectives are.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "core/flat_layout.h"

namespace fsdp::optim {

class Clipper {
 public:
  // `group`: ranks that hold different shards of one gradient (null or one rank: nothing to add).
  // max_norm <= 0: measure only. power: 1, 2, 3, ... or infinity. `decides`: on whose compute
  // stream the results are; null: on that of the gradients' backend. `one_by_one`: the optimizer
  // does not wait for the norm: gradients are measured by measure_shard(), and it multiplies by 1.
  Clipper(const std::vector<OptimizerShard>& shards, comm::Communicator* group, double max_norm,
          double power = 2, Backend* decides = nullptr, bool one_by_one = false);

  // With one_by_one, in any order, before measure(): each shard once, while its gradient is there.
  void measure_shard(size_t index);

  // Norm of the reduced gradients of all shards, padding excluded; sets the tensors below.
  // `loss_scale`: what the gradients were multiplied by; `overflow`: whether one was too large for
  // its dtype on any rank; null: neither is tested. `skip_above`: norms that are too large.
  // Collective over the group.
  void measure(const Tensor* loss_scale = nullptr,  // (), f32
               const Tensor* overflow = nullptr,    // (), i32
               double skip_above = std::numeric_limits<double>::infinity());

  const Tensor& norm() const { return norm_; }  // (), f64: unscaled, before clipping
  const Tensor& coefficient() const {
    return coefficient_;
  }                                             // (): min(1, max / (norm + 1e-6)), unscales
  const Tensor& skip() const { return skip_; }  // (), i32: a StepSkip
  // The last two beside the gradients; with one_by_one 1 and 0, always.
  struct ForOptimizer {
    Tensor coefficient, skip;
  };
  const ForOptimizer& for_optimizer() const { return for_optimizer_; }

 private:
  // A gradient and what counts of it.
  struct Part {
    Tensor gradient;
    std::vector<std::pair<int64_t, int64_t>> spans;
    std::vector<int64_t> first_blocks;  // of the spans, with blocks_
    int64_t first_sum = 0;              // of the blocks of the unit, among all
    int64_t blocks = 0;                 // over all shards of the unit
    std::shared_ptr<ShardAccess> access;
  };
  bool is_apart() const { return &sums_.backend() != &norm_.backend(); }
  void sum_gradients();
  void sum_blocks(const Part& part);
  void sum_shard(const Part& part, Tensor out, bool accumulate);
  void add_shards();
  void clear_sums(int64_t first, int64_t count);
  void add_over_ranks();

  std::vector<Part> parts_;
  comm::Communicator* group_;
  double max_norm_;
  double power_;
  bool one_by_one_;
  Tensor shard_sums_;  // (shards), f64: with one_by_one, unless by blocks
  // Of this rank's gradients: (), f64, or (blocks of all units) where their order is fixed.
  Tensor sums_;
  Tensor all_sums_;   // the same of all ranks, on the backend that decides; there sums_ itself
  Tensor power_sum_;  // (), f64: the sum of all_sums_, or itself
  bool by_blocks_ = false;
  ForOptimizer for_optimizer_;
  Tensor norm_;
  Tensor coefficient_;
  Tensor skip_;
};

}  // namespace fsdp::optim
