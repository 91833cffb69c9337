// One kernel a shard.
#include "optim/adamax.h"

namespace fsdp::optim {

Adamax::Adamax(std::vector<OptimizerShard> shards, const OptimizerOptions& options)
    : Optimizer(std::move(shards), options, state_names()) {}

void Adamax::update(Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& state) {
  backend.run(backend.compute_stream(), AdamaxArgs{.shard = shard,
                                                   .exp_avg = state[0],
                                                   .exp_inf = state[1],
                                                   .beta1 = options().beta1,
                                                   .beta2 = options().beta2,
                                                   .epsilon = options().epsilon});
}

}  // namespace fsdp::optim
