// Adadelta, whose steps have the scale of its earlier steps, as torch.optim.Adadelta; formulas:
// core/kernel_args.h, AdadeltaArgs. PyTorch's learning rate is 1.
#pragma once

#include "optim/optimizer.h"

namespace fsdp::optim {

class Adadelta final : public Optimizer {
 public:
  Adadelta(std::vector<OptimizerShard> shards, const OptimizerOptions& options);
  static std::vector<std::string_view> state_names() { return {"square_avg", "acc_delta"}; }

 private:
  void update(Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& state) override;
};

}  // namespace fsdp::optim
