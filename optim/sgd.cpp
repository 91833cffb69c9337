// SGD with the memory that its momentum needs.
#include "optim/sgd.h"

namespace fsdp::optim {

Sgd::Sgd(std::vector<OptimizerShard> shards, const OptimizerOptions& options)
    : Optimizer(std::move(shards), options, state_names(options)) {
  FSDP_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
             "[sgd] nesterov: expected momentum above 0 and dampening 0, got {} and {}",
             options.momentum, options.dampening);
}

std::vector<std::string_view> Sgd::state_names(const OptimizerOptions& options) {
  if (options.momentum == 0) return {};
  return {"momentum_buffer"};
}

void Sgd::update(Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& state) {
  backend.run(backend.compute_stream(),
              SgdArgs{.shard = shard,
                      .momentum_buffer = state.empty() ? nullptr : &state[0],
                      .momentum = options().momentum,
                      .dampening = options().dampening,
                      .nesterov = options().nesterov});
}

}  // namespace fsdp::optim
