// The split of the divisor.
#include "comm/fsdp/divide.h"

#include <cmath>

namespace fsdp::comm {

GradientDivision gradient_division(const DivisionRule& rule) {
  const double divisor = rule.factor.value_or(rule.shards * rule.replicas);
  FSDP_CHECK(divisor > 0, "[fsdp] divide factor: expected a positive number, got {}", divisor);
  const bool wide_range = rule.reduce_dtype == DType::kF32 || rule.reduce_dtype == DType::kBF16;
  if (wide_range && !rule.split) {
    if (rule.force_sum) return {.after = divisor};
    if (!rule.factor) return {.op = ReduceOp::kAverage, .replica_op = ReduceOp::kAverage};
    if (divisor == rule.shards) return {.op = ReduceOp::kAverage};
    return {.before = divisor};
  }
  double before = 1;
  while (std::fmod(divisor, before) == 0 && divisor / before > before) before *= 2;
  return {.before = before, .after = divisor / before};
}

}  // namespace fsdp::comm
