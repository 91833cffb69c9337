// One kernel for AdamW and Adam.
#include "optim/adam.h"

namespace fsdp::optim {

Adam::Adam(std::vector<OptimizerShard> shards, const OptimizerOptions& options)
    : Optimizer(std::move(shards), options.weight_decay, state_names()), options_(options) {}

void Adam::update(Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& state) {
  backend.adam(backend.compute_stream(), {.shard = shard,
                                          .exp_avg = state[0],
                                          .exp_avg_sq = state[1],
                                          .beta1 = options_.beta1,
                                          .beta2 = options_.beta2,
                                          .epsilon = options_.epsilon,
                                          .decoupled = options_.kind == OptimizerKind::kAdamW});
}

}  // namespace fsdp::optim
