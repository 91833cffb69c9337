// The last step of every sum over rows: rows of partial sums, one per block of the step before,
// added in order. Gradients of biases and of the weights of norms. See column_sums.cu.
#pragma once

#include <initializer_list>

#include "kernels/cuda/op.h"

namespace fsdp::cuda {

struct ColumnSums {
  const Tensor* out;        // (columns), any floating dtype; null: not wanted
  int64_t first;            // of its columns in a row of partials
  bool accumulate = false;  // out += instead of =
};
// What is wanted of `sums`, one or two of equally many columns, becomes the sum of `rows` rows of
// partials, `stride` floats apart, in one launch. A launch after the one that wrote them: were it
// the last block there that adds them up, one multiprocessor would have all of this work.
void add_partials(const Op& op, const float* partials, int64_t rows, int64_t stride,
                  std::initializer_list<ColumnSums> sums);

}  // namespace fsdp::cuda
