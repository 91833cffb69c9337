// What a kernel costs at the very least: floating-point operations of its matrix products (a
// multiply-add is two), and bytes when every matrix is read once and written once. Vectors,
// statistics, indices and scalars are left out: they are less than a thousandth of the rest.
// Not here: which kernel costs what (cost_of in core/kernel_args.h), what a model's step consists
// of (tools/predict/step_cost.h), how long it takes.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/shape.h"

namespace fsdp {

struct Cost {
  int64_t flops = 0;  // of matrix products only
  int64_t bytes = 0;

  Cost& operator+=(const Cost& other) {
    flops += other.flops;
    bytes += other.bytes;
    return *this;
  }
  friend Cost operator*(Cost cost, int64_t times) {
    return {cost.flops * times, cost.bytes * times};
  }
  bool operator==(const Cost&) const = default;
};

// c (m, n) = op(a) op(b) [+ c]; see MatmulArgs.
struct MatmulExtents {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  DType operand = DType::kF32;  // of a and b
  DType result = DType::kF32;
  int64_t row_a = 0, row_c = 0;  // stored length of rows that are padded; 0: they are not

  Shape a() const {
    const int64_t columns = transpose_a ? m : k;
    return {transpose_a ? k : m, row_a > 0 ? row_a : columns};
  }
  Shape b() const { return transpose_b ? Shape{n, k} : Shape{k, n}; }
  Shape c() const { return {m, row_c > 0 ? row_c : n}; }
  bool operator==(const MatmulExtents&) const = default;
};
Cost matmul_cost(const MatmulExtents& e);

// What the rate of attention depends on beside its cost; see AttentionArgs.
struct AttentionExtents {
  int64_t head_dim = 0;
  int64_t keys = 0;  // Tk
  bool operator==(const AttentionExtents&) const = default;
};

}  // namespace fsdp
