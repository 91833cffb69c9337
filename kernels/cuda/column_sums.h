// The last step of every sum over rows: rows of partial sums, one per block of the step before,
// added in order. Gradients of biases and of the weights of norms. See column_sums.cu.
#pragma once

#include "kernels/cuda/op.h"

namespace fsdp::cuda {

// out (columns), of any floating dtype, (+)= the sum of `rows` rows of partials, `stride` floats
// apart.
void add_partials(const Op& op, const float* partials, int64_t rows, int64_t stride,
                  const Tensor& out, bool accumulate);

}  // namespace fsdp::cuda
