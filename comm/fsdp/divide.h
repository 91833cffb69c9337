// Where the division of a gradient average happens. Source: PyTorch FSDP2,
// _fsdp_collectives.py `_get_gradient_divide_factors`, and FSDP1's default_hooks.py.
#pragma once

#include <optional>

#include "comm/communicator.h"

namespace fsdp::comm {

// gradient /= before; reduce with `op` over the shards, then with `replica_op` over the replicas;
// result /= after.
struct GradientDivision {
  double before = 1;
  double after = 1;
  ReduceOp op = ReduceOp::kSum;
  ReduceOp replica_op = ReduceOp::kSum;
};

struct DivisionRule {
  DType reduce_dtype;
  int shards = 1;
  int replicas = 1;
  std::optional<double> factor = std::nullopt;  // divides instead of the number of ranks
  bool force_sum = false;                       // after the sum, where there is less data
  bool split = false;                           // in every dtype (FSDP1)
};

// f32, bf16: the collectives average; with a factor they average over the shards if it is their
// number, else the terms are divided before the sum. f16 and f64: the divisor is split around the
// sum, about sqrt each way, so that neither the terms underflow nor the sum overflows.
// One difference: PyTorch's collective (NCCL's PREMUL_SUM) multiplies the terms by the rounded
// 1 / factor; here they are divided. That is the same for powers of two, else one rounding less.
GradientDivision gradient_division(const DivisionRule& rule);

}  // namespace fsdp::comm
