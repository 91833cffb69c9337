// Where the division of a gradient average happens. Source: PyTorch FSDP2,
// _fsdp_collectives.py `_get_gradient_divide_factors`, and FSDP1's default_hooks.py.
#pragma once

#include <optional>

#include "comm/communicator.h"

namespace fsdp::comm {

// gradient /= before; reduce with `op` (over shards, then over replicas); result /= after.
struct GradientDivision {
  double before = 1;
  double after = 1;
  ReduceOp op = ReduceOp::kSum;
};

// f32, bf16, f64: the collective averages; with another factor or force_sum, sum and divide after,
// where there is less data. f16, and with `split` every dtype (FSDP1): the divisor is split around
// the sum, about sqrt each way, so that neither the terms underflow nor the sum overflows.
GradientDivision gradient_division(DType reduce_dtype, int ranks, std::optional<double> factor,
                                   bool force_sum, bool split = false);

}  // namespace fsdp::comm
