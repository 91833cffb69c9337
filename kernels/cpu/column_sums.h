// Sums over rows, of matrices and of what kernels compute row by row: partial sums of fixed blocks
// of rows (row_blocks.h), added in order. The same bits for any number of threads.
#pragma once

#include "core/tensor.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_blocks.h"

namespace fsdp::cpu {

// partial (columns) += the rows of x, `row_length` elements apart.
template <typename T>
inline void add_rows(const T* x, int64_t rows, int64_t columns, int64_t row_length,
                     Accumulate<T>* partial) {
  using Sum = Accumulate<T>;
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {  // four at a time: partial is read and written less often
    const T *x0 = x + i * row_length, *x1 = x0 + row_length, *x2 = x1 + row_length,
            *x3 = x2 + row_length;
#pragma GCC ivdep
    for (int64_t j = 0; j < columns; ++j) {
      partial[j] += (Sum(x0[j]) + Sum(x1[j])) + (Sum(x2[j]) + Sum(x3[j]));
    }
  }
  for (; i < rows; ++i) {
#pragma GCC ivdep
    for (int64_t j = 0; j < columns; ++j) partial[j] += Sum(x[i * row_length + j]);
  }
}

// Where sums over rows go: often a parameter's gradient.
struct ColumnTarget {
  void* data;  // null: not wanted
  DType dtype;
  bool accumulate;

  ColumnTarget(const Tensor* tensor, bool accumulate)
      : data(tensor ? tensor->data() : nullptr),
        dtype(tensor ? tensor->dtype() : DType::kF32),
        accumulate(accumulate) {}

  // partials (blocks, stride), of which n columns count.
  template <typename A>
  void add_blocks(const A* partials, int64_t blocks, int64_t stride, int64_t n,
                  ThreadTeam& team) const {
    constexpr int64_t kColumnGrain = 512;
    if (!data) return;
    dispatch_floating(dtype, "column sums", [&]<typename Out>(TypeTag<Out>) {
      Out* out = static_cast<Out*>(data);
      team.parallel_for(n, kColumnGrain, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
          A total = 0;
          for (int64_t block = 0; block < blocks; ++block) total += partials[block * stride + c];
          using Sum = std::common_type_t<A, Accumulate<Out>>;
          out[c] = Out((accumulate ? Sum(out[c]) : Sum(0)) + Sum(total));
        }
      });
    });
  }
};

}  // namespace fsdp::cpu
