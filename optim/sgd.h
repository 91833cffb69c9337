// Stochastic gradient descent, as torch.optim.SGD; formulas: core/kernel_args.h, SgdArgs. Without
// momentum no state is kept for the elements.
#pragma once

#include "optim/optimizer.h"

namespace fsdp::optim {

class Sgd final : public Optimizer {
 public:
  // Error when Nesterov's momentum has no momentum or is dampened.
  Sgd(std::vector<OptimizerShard> shards, const OptimizerOptions& options);
  static std::vector<std::string_view> state_names(const OptimizerOptions& options);

 private:
  void update(Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& state) override;
};

}  // namespace fsdp::optim
