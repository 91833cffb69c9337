// AdamW and Adam. They differ in what weight decay does; formulas: core/kernel_args.h, AdamArgs.
#pragma once

#include "optim/optimizer.h"

namespace fsdp::optim {

class Adam final : public Optimizer {
 public:
  Adam(std::vector<OptimizerShard> shards, const OptimizerOptions& options);
  static std::vector<std::string_view> state_names() { return {"exp_avg", "exp_avg_sq"}; }

 private:
  void update(Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& state) override;
};

}  // namespace fsdp::optim
