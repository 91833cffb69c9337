// What each op costs at the very least, declared once for benchmarks, traces and cost models:
// floating-point operations of its matrix products (a multiply-add is two), and bytes when every
// matrix is read once and written once. One-dimensional tensors (biases, statistics, labels,
// tokens) are left out: they are less than a thousandth of the rest.
// Not here: what a model's step consists of (tools/predict/step_cost.h), how long it takes.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/shape.h"

namespace fsdp::ops {

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

// ---- matrix products ----

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

struct AttentionExtents {
  int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, head_dim = 0;
  bool causal = true;
};
int64_t attention_pairs(const AttentionExtents& e);                   // query-key pairs not masked
Cost attention_forward_cost(const AttentionExtents& e, DType dtype);  // q k^T, p v
Cost attention_backward_cost(const AttentionExtents& e,
                             DType dtype);  // q k^T again, dp, dv, dq, dk

// ---- one pass over a matrix of `elements`, `dtype` of compute ----

Cost add_cost(int64_t elements, DType dtype);
Cost activation_forward_cost(int64_t elements, DType dtype);           // x in, y out
Cost activation_backward_cost(int64_t elements, DType dtype);          // x, dy in, dx out
Cost glu_forward_cost(int64_t elements, DType dtype);                  // gate, up in, y out
Cost glu_backward_cost(int64_t elements, DType dtype);                 // and dy in, dgate, dup out
Cost norm_forward_cost(int64_t elements, DType dtype, bool residual);  // and residual in, sum out
Cost norm_backward_cost(int64_t elements, DType dtype, bool dsum);  // dy, x [and dsum] in, dx out
Cost rope_cost(int64_t elements, DType dtype);                      // in place
Cost sum_rows_cost(int64_t elements, DType dtype);                  // bias gradient: dy in
Cost cast_cost(int64_t elements, DType from, DType to);
Cost copy_cost(int64_t elements, DType dtype);     // also head by head
Cost dropout_cost(int64_t elements, DType dtype);  // x in, y out
Cost divide_cost(int64_t elements, DType dtype);   // in place
Cost fill_cost(int64_t elements, DType dtype);     // zeros or random numbers out
// (B, T, C) from `elements` of the table and T * C of positions, 0 without.
Cost embedding_forward_cost(int64_t elements, int64_t position_elements, DType dtype);
// dy in; the token's rows of the table's gradient read and written. `stored_table`: elements of a
// table whose gradient starts here and is first set to zero; 0 when it adds to the head's.
Cost embedding_backward_cost(int64_t elements, int64_t stored_table, DType dtype, DType gradient);
// dy in; the table of positions written.
Cost position_backward_cost(int64_t elements, int64_t table, DType dtype, DType gradient);
// logits in (accumulation dtype), their gradient out (compute dtype).
Cost cross_entropy_cost(int64_t elements, DType dtype);
Cost cross_entropy_loss_cost(int64_t elements, DType dtype);  // logits in

// ---- the optimizer, over a flat shard ----

Cost power_sum_cost(int64_t elements, DType gradient);
Cost find_overflow_cost(int64_t elements, DType gradient);
// The kernel of any optimizer that steps element by element: the master and its `states` other
// values of an element (AdamW: 2) in and out, gradient in; with_copy: values in the compute dtype
// out. AdamW: 28 bytes a parameter in f32, 30 with a bf16 copy.
Cost shard_update_cost(int64_t elements, int64_t states, DType compute, DType gradient,
                       bool with_copy);

}  // namespace fsdp::ops
