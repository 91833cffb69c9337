// AdamW over the shards of one rank. State is allocated on the backend of each shard.
#pragma once

#include <vector>

#include "core/flat_layout.h"

namespace fsdp::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // of parameters whose decay flag is set before sharding
};

class AdamW {
 public:
  AdamW(std::vector<OptimizerShard> shards, const AdamWOptions& options);

  // One step of every shard with the reduced gradients. `coefficient` multiplies the gradients,
  // `skip` != 0 makes the step a no-op, both read on the device; see Clipper.
  void step(double learning_rate,
            const Tensor& coefficient,  // (), accumulation dtype
            const Tensor& skip);        // (), i32

  // What a checkpoint saves besides the master, per shard.
  struct State {
    Tensor exp_avg;      // (n)
    Tensor exp_avg_sq;   // (n)
    Tensor step_counts;  // (parameters), i32
  };
  const std::vector<State>& state() const { return state_; }
  const std::vector<OptimizerShard>& shards() const { return shards_; }

 private:
  std::vector<OptimizerShard> shards_;
  AdamWOptions options_;
  std::vector<State> state_;
  Tensor learning_rate_;  // (), f64
};

}  // namespace fsdp::optim
