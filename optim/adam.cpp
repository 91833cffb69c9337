// One kernel for AdamW and Adam.
#include "optim/adam.h"

namespace fsdp::optim {

Adam::Adam(std::vector<OptimizerShard> shards, const OptimizerOptions& options)
    : Optimizer(std::move(shards), options, state_names()) {}

void Adam::update(Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& state) {
  backend.run(backend.compute_stream(),
              AdamArgs{.shard = shard,
                       .exp_avg = state[0],
                       .exp_avg_sq = state[1],
                       .beta1 = options().beta1,
                       .beta2 = options().beta2,
                       .epsilon = options().epsilon,
                       .decoupled = options().kind == OptimizerKind::kAdamW});
}

}  // namespace fsdp::optim
