// One kernel a shard.
#include "optim/adadelta.h"

namespace fsdp::optim {

Adadelta::Adadelta(std::vector<OptimizerShard> shards, const OptimizerOptions& options)
    : Optimizer(std::move(shards), options, state_names()) {}

void Adadelta::update(Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& state) {
  backend.run(backend.compute_stream(), AdadeltaArgs{.shard = shard,
                                                     .square_avg = state[0],
                                                     .acc_delta = state[1],
                                                     .rho = options().rho,
                                                     .epsilon = options().epsilon});
}

}  // namespace fsdp::optim
