// Values in and out of the shards of a sharded model: initial ones, and full ones for saving and
// checking. They work on one unit at a time: no rank ever holds the model. A step needs none of
// them (comm/fsdp).
#pragma once

#include <functional>

#include "comm/fsdp/fully_sharded.h"
#include "models/weights.h"

namespace fsdp {

// Gives every element of the master shards its value: `fill` is called for each part of a parameter
// that this rank owns.
void initialise(comm::FullySharded& sharded, const models::FillFunction& fill);
// The same, but only rank 0 calls `fill`, for whole parameters; the others receive their parts and
// may pass null (PyTorch's sync_module_states). Collective.
void initialise_from_first_rank(comm::FullySharded& sharded, const models::FillFunction& fill);

// Full values (or reduced gradients) of every parameter in the master dtype. Collective; `visit` is
// called on every rank. `wanted`: only of some, the same on all ranks; what is frozen is not
// gathered for trainable ones, nor the other way round.
using Visitor = std::function<void(const Parameter&, const Tensor& values)>;
using Wanted = std::function<bool(const Parameter&)>;
void visit_parameters(const comm::FullySharded& sharded, const Visitor& visit,
                      const Wanted& wanted = nullptr);
void visit_gradients(const comm::FullySharded& sharded, const Visitor& visit);

}  // namespace fsdp
