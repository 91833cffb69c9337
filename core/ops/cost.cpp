// The formulas of cost.h.
#include "core/ops/cost.h"

namespace fsdp::ops {
namespace {

int64_t width(DType dtype) { return static_cast<int64_t>(size_of(dtype)); }

Cost passes(int64_t times, int64_t elements, DType dtype) {
  return {.bytes = times * elements * width(dtype)};
}

// Elements of q (and of the output), and of k (and of v).
int64_t query_elements(const AttentionExtents& e) {
  return e.batch * e.queries * e.heads * e.head_dim;
}
int64_t key_elements(const AttentionExtents& e) {
  return e.batch * e.keys * e.kv_heads * e.head_dim;
}

Cost attention_products(const AttentionExtents& e, int64_t products) {
  return {.flops = products * 2 * e.batch * e.heads * attention_pairs(e) * e.head_dim};
}

}  // namespace

Cost matmul_cost(const MatmulExtents& e) {
  const int64_t results = (e.accumulate ? 2 : 1) * e.m * e.n;
  return {.flops = 2 * e.m * e.n * e.k,
          .bytes = (e.m * e.k + e.k * e.n) * width(e.operand) + results * width(e.result)};
}

int64_t attention_pairs(const AttentionExtents& e) {
  if (!e.causal) return e.queries * e.keys;
  // Query i sees keys up to i + keys - queries.
  return e.queries * (e.keys - e.queries) + e.queries * (e.queries + 1) / 2;
}

Cost attention_forward_cost(const AttentionExtents& e, DType dtype) {
  Cost cost = attention_products(e, 2);
  cost.bytes = 2 * (query_elements(e) + key_elements(e)) * width(dtype);
  return cost;
}

Cost attention_backward_cost(const AttentionExtents& e, DType dtype) {
  Cost cost = attention_products(e, 5);
  // q, out, dout, dq and k, v, dk, dv
  cost.bytes = 4 * (query_elements(e) + key_elements(e)) * width(dtype);
  return cost;
}

Cost add_cost(int64_t elements, DType dtype) { return passes(3, elements, dtype); }
Cost activation_forward_cost(int64_t elements, DType dtype) { return passes(2, elements, dtype); }
Cost activation_backward_cost(int64_t elements, DType dtype) { return passes(3, elements, dtype); }
Cost glu_forward_cost(int64_t elements, DType dtype) { return passes(3, elements, dtype); }
Cost glu_backward_cost(int64_t elements, DType dtype) { return passes(5, elements, dtype); }

Cost norm_forward_cost(int64_t elements, DType dtype, bool residual) {
  return passes(residual ? 4 : 2, elements, dtype);
}

Cost norm_backward_cost(int64_t elements, DType dtype, bool dsum) {
  return passes(dsum ? 4 : 3, elements, dtype);
}

Cost rope_cost(int64_t elements, DType dtype) { return passes(2, elements, dtype); }
Cost sum_rows_cost(int64_t elements, DType dtype) { return passes(1, elements, dtype); }

Cost cast_cost(int64_t elements, DType from, DType to) {
  return {.bytes = elements * (width(from) + width(to))};
}

Cost copy_cost(int64_t elements, DType dtype) { return passes(2, elements, dtype); }
Cost dropout_cost(int64_t elements, DType dtype) { return passes(2, elements, dtype); }
Cost divide_cost(int64_t elements, DType dtype) { return passes(2, elements, dtype); }
Cost fill_cost(int64_t elements, DType dtype) { return passes(1, elements, dtype); }

Cost embedding_forward_cost(int64_t elements, int64_t position_elements, DType dtype) {
  return {.bytes = (2 * elements + position_elements) * width(dtype)};
}

Cost embedding_backward_cost(int64_t elements, int64_t stored_table, DType dtype, DType gradient) {
  return {.bytes = elements * width(dtype) + (2 * elements + stored_table) * width(gradient)};
}

Cost position_backward_cost(int64_t elements, int64_t table, DType dtype, DType gradient) {
  return {.bytes = elements * width(dtype) + table * width(gradient)};
}

Cost cross_entropy_cost(int64_t elements, DType dtype) {
  return cast_cost(elements, accumulation_dtype(dtype), dtype);
}

Cost cross_entropy_loss_cost(int64_t elements, DType dtype) {
  return passes(1, elements, accumulation_dtype(dtype));
}

Cost power_sum_cost(int64_t elements, DType gradient) { return passes(1, elements, gradient); }
Cost find_overflow_cost(int64_t elements, DType gradient) { return passes(1, elements, gradient); }

Cost shard_update_cost(int64_t elements, int64_t states, DType compute, DType gradient,
                       bool with_copy) {
  const int64_t own = 2 * (1 + states) * width(accumulation_dtype(compute));
  return {.bytes = elements * (own + width(gradient) + (with_copy ? width(compute) : 0))};
}

}  // namespace fsdp::ops
