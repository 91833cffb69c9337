// The split of the divisor.
#include "comm/fsdp/divide.h"

#include <cmath>

namespace fsdp::comm {

GradientDivision gradient_division(DType reduce_dtype, int ranks, std::optional<double> factor,
                                   bool force_sum, bool split) {
  const double divisor = factor.value_or(ranks);
  FSDP_CHECK(divisor > 0, "[fsdp] divide factor: expected a positive number, got {}", divisor);
  if (reduce_dtype != DType::kF16 && !split) {
    if (!force_sum && divisor == ranks) return {.op = ReduceOp::kAverage};
    return {.after = divisor};
  }
  double before = 1;
  while (std::fmod(divisor, before) == 0 && divisor / before > before) before *= 2;
  return {.before = before, .after = divisor / before};
}

}  // namespace fsdp::comm
