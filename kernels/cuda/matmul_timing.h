// Times the algorithms that cuBLASLt offers for a kind of product. Not here: what is made of it
// (matmul_choices.h).
#pragma once

#include <optional>

#include "kernels/cuda/matmul_plan.h"
#include "kernels/cuda/op.h"

namespace fsdp::cuda {

// The place of the fastest among the plan's candidates, by the median of several calls, on memory
// of its own: nothing of the caller's is read or written. The first unless another is faster by
// over 2 %. Waits for the stream, so that the kernels before do not disturb. None: there is not
// enough memory to try, or every candidate is refused.
std::optional<size_t> fastest_candidate(const Op& op, lt::Handle handle, MatmulPlan& plan);

}  // namespace fsdp::cuda
