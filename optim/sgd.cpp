// SGD with the memory that its momentum needs.
#include "optim/sgd.h"

namespace fsdp::optim {

Sgd::Sgd(std::vector<OptimizerShard> shards, const OptimizerOptions& options)
    : Optimizer(std::move(shards), options.weight_decay, state_names(options)), options_(options) {
  FSDP_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
             "[sgd] nesterov: expected momentum above 0 and dampening 0, got {} and {}",
             options.momentum, options.dampening);
}

std::vector<std::string_view> Sgd::state_names(const OptimizerOptions& options) {
  if (options.momentum == 0) return {};
  return {"momentum_buffer"};
}

void Sgd::update(Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& state) {
  backend.sgd(backend.compute_stream(), {.shard = shard,
                                         .momentum_buffer = state.empty() ? nullptr : &state[0],
                                         .momentum = options_.momentum,
                                         .dampening = options_.dampening,
                                         .nesterov = options_.nesterov});
}

}  // namespace fsdp::optim
