// Adamax, the variant of Adam with the infinity norm, as torch.optim.Adamax; formulas:
// core/kernel_args.h, AdamaxArgs. fairseq's own Adamax shrinks parameters as AdamW does instead.
#pragma once

#include "optim/optimizer.h"

namespace fsdp::optim {

class Adamax final : public Optimizer {
 public:
  Adamax(std::vector<OptimizerShard> shards, const OptimizerOptions& options);
  static std::vector<std::string_view> state_names() { return {"exp_avg", "exp_inf"}; }

 private:
  void update(Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& state) override;
};

}  // namespace fsdp::optim
