// What homes of all kinds have in common.
#include "comm/fsdp/home/shard_home.h"

#include "core/shard_args.h"

namespace fsdp::comm {

ShardHome::Tensors ShardHome::for_optimizer() const {
  Tensors tensors = at_work_;
  if (spec_.rounding_seed) tensors.copy = Tensor();
  return tensors;
}

void ShardHome::end(Use use) {
  if (use == Use::kUpdate && spec_.rounding_seed) make_copy(homes_.updates() + 1);
}

void ShardHome::make_copy(uint32_t update) const {
  if (!at_work_.copy.defined()) return;
  narrow(at_work_.master.backend().compute_stream(), at_work_.copy, update);
}

// A shard that is only padding has no runs.
void ShardHome::narrow(Stream& stream, Tensor out, uint32_t update) const {
  const Tensor& master = at_work_.master;
  Backend& backend = master.backend();
  if (!spec_.rounding_seed) return backend.run(stream, CastArgs{master, out});
  backend.run(stream, StochasticRoundArgs{.x = master,
                                          .out = out,
                                          .runs = spec_.runs,
                                          .seed = *spec_.rounding_seed,
                                          .update = update});
}

Tensor ShardHome::zeros_on(Backend& backend, DType dtype) const {
  return Tensor::zeros(backend, Shape{spec_.numel}, dtype, MemoryCategory::kParameterShard);
}

void ShardHomes::updated() { updated_ = rank_.device.record(rank_.device.compute_stream()); }

}  // namespace fsdp::comm
