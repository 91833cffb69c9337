// Tokens and labels that lie outside of their table: kernels pass them over, and the host learns of
// the first one at its next wait, as with the CPU backend. See indices.cu.
#pragma once

#include <functional>

#include "kernels/cuda/op.h"

namespace fsdp::cuda {

// Calls report(position, value), which must throw, in the order of the stream when one of ids (N),
// i32, is neither in [0, limit) nor `allowed`. The host does not wait.
void check_indices(const Op& op, const Tensor& ids, int64_t limit, int32_t allowed,
                   std::function<void(int64_t position, int32_t value)> report);

}  // namespace fsdp::cuda
