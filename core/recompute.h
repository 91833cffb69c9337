// Activation recompute (activation checkpointing; Chen et al., 2016, arXiv 1604.06174): forward keeps
// only the input of a piece of the model; backward runs the piece again, now recording, and goes
// through it at once. Values are the same bits: kernels are deterministic and random numbers are
// keyed, not drawn.
#pragma once

#include <functional>

#include "core/autograd.h"

namespace fsdp {

// body(input), of which the tape keeps nothing but the input. `body` must be a function of its input
// and of parameters only, and may be called after this returns.
Tensor recompute(Tape& tape, const Tensor& input, std::function<Tensor(const Tensor&)> body);

}  // namespace fsdp
