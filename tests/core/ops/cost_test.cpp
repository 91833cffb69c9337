// The cost table: FLOPs and bytes of every op on small extents, counted by hand; and against sums
// over the elements that a kernel touches.
#include "core/ops/cost.h"

#include <doctest/doctest.h>

namespace fsdp::ops {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kF64 = DType::kF64;

}  // namespace

TEST_CASE("cost of matrix products") {
  MatmulExtents e = {.m = 3, .n = 5, .k = 7};
  CHECK(matmul_cost(e) == Cost{.flops = 210, .bytes = 4 * (21 + 35 + 15)});
  e.accumulate = true;  // reads the result too
  CHECK(matmul_cost(e) == Cost{.flops = 210, .bytes = 4 * (21 + 35 + 2 * 15)});
  e.operand = kBF16;  // a bf16 weight gradient in f32
  CHECK(matmul_cost(e) == Cost{.flops = 210, .bytes = 2 * (21 + 35) + 4 * 2 * 15});
  e.transpose_a = e.transpose_b = true;  // the same work in any layout
  CHECK(matmul_cost(e).flops == 210);
  CHECK(e.a() == Shape{7, 3});
  CHECK(e.b() == Shape{5, 7});
  CHECK(e.c() == Shape{3, 5});
  const Cost cost = matmul_cost(e);
  e.row_a = e.row_c = 64;  // padding is neither read nor counted
  CHECK(matmul_cost(e) == cost);
  CHECK(e.a() == Shape{7, 64});
  CHECK(e.c() == Shape{3, 64});
  e.transpose_a = e.transpose_b = false;
  e.row_a = 0;
  CHECK(e.a() == Shape{3, 7});
  CHECK(e.b() == Shape{7, 5});
}

TEST_CASE("cost of attention: every pair of a query and a key it sees") {
  for (const bool causal : {true, false}) {
    AttentionExtents e = {.batch = 2,
                          .heads = 6,
                          .kv_heads = 3,
                          .queries = 5,
                          .keys = 9,
                          .head_dim = 4,
                          .causal = causal};
    int64_t pairs = 0;
    for (int64_t i = 0; i < e.queries; ++i) {
      for (int64_t j = 0; j < e.keys; ++j) pairs += !causal || j <= i + e.keys - e.queries;
    }
    CHECK(attention_pairs(e) == pairs);
    const int64_t product = 2 * pairs * e.head_dim * e.batch * e.heads;
    const int64_t q = 2 * 5 * 6 * 4, k = 2 * 9 * 3 * 4;  // elements
    CHECK(attention_forward_cost(e, kF32) ==
          Cost{.flops = 2 * product, .bytes = 4 * (q + k + k + q)});
    CHECK(attention_backward_cost(e, kBF16) ==
          Cost{.flops = 5 * product, .bytes = 2 * ((q + q + q + q) + (k + k + k + k))});
  }
}

TEST_CASE("cost of element-wise passes: bytes per element") {
  struct Row {
    const char* op;
    Cost f32, bf16;
    int64_t f32_bytes, bf16_bytes;
  };
  constexpr int64_t n = 1000;
  const auto row = [](const char* op, auto cost, int64_t f32_bytes, int64_t bf16_bytes) {
    return Row{op, cost(kF32), cost(kBF16), f32_bytes, bf16_bytes};
  };
  // The fixed table: what is read and written of a matrix of 1 element.
  // clang-format off
  const Row table[] = {
      row("add", [](DType t) { return add_cost(n, t); }, 12, 6),
      row("activation_forward", [](DType t) { return activation_forward_cost(n, t); }, 8, 4),
      row("activation_backward", [](DType t) { return activation_backward_cost(n, t); }, 12, 6),
      row("glu_forward", [](DType t) { return glu_forward_cost(n, t); }, 12, 6),
      row("glu_backward", [](DType t) { return glu_backward_cost(n, t); }, 20, 10),
      row("norm_forward", [](DType t) { return norm_forward_cost(n, t, false); }, 8, 4),
      row("norm_forward with residual", [](DType t) { return norm_forward_cost(n, t, true); }, 16, 8),
      row("norm_backward", [](DType t) { return norm_backward_cost(n, t, false); }, 12, 6),
      row("norm_backward with dsum", [](DType t) { return norm_backward_cost(n, t, true); }, 16, 8),
      row("rope", [](DType t) { return rope_cost(n, t); }, 8, 4),
      row("sum_rows", [](DType t) { return sum_rows_cost(n, t); }, 4, 2),
      row("cast to f32", [](DType t) { return cast_cost(n, t, DType::kF32); }, 8, 6),
      row("copy", [](DType t) { return copy_cost(n, t); }, 8, 4),
      row("dropout", [](DType t) { return dropout_cost(n, t); }, 8, 4),
      row("divide", [](DType t) { return divide_cost(n, t); }, 8, 4),
      row("fill", [](DType t) { return fill_cost(n, t); }, 4, 2),
      row("cross_entropy", [](DType t) { return cross_entropy_cost(n, t); }, 8, 6),
      row("cross_entropy, loss", [](DType t) { return cross_entropy_loss_cost(n, t); }, 4, 4),
      row("power_sum", [](DType t) { return power_sum_cost(n, t); }, 4, 2),
      row("find_overflow", [](DType t) { return find_overflow_cost(n, t); }, 4, 2),
      row("adamw", [](DType t) { return shard_update_cost(n, 2, t, kF32, false); }, 28, 28),
      row("adamw with copy", [](DType t) { return shard_update_cost(n, 2, t, kF32, true); }, 32, 30),
      row("sgd", [](DType t) { return shard_update_cost(n, 0, t, kF32, false); }, 12, 12),
      row("sgd with momentum", [](DType t) { return shard_update_cost(n, 1, t, kF32, false); }, 20, 20),
  };
  // clang-format on
  for (const Row& r : table) {
    CAPTURE(r.op);
    CHECK(r.f32 == Cost{.bytes = n * r.f32_bytes});
    CHECK(r.bf16 == Cost{.bytes = n * r.bf16_bytes});
  }
  CHECK(shard_update_cost(n, 2, kF64, kF64, false).bytes == n * 56);
}

TEST_CASE("cost of embeddings") {
  constexpr int64_t n = 100, positions = 10, table = 7000;
  CHECK(embedding_forward_cost(n, positions, kF32).bytes == 4 * (n + positions + n));
  CHECK(embedding_backward_cost(n, 0, kF32, kF32).bytes == 4 * (n + n + n));
  CHECK(embedding_backward_cost(n, table, kBF16, kF32).bytes == 2 * n + 4 * (n + n + table));
  CHECK(position_backward_cost(n, table, kBF16, kF32).bytes == 2 * n + 4 * table);
}

TEST_CASE("costs add up") {
  Cost sum = {.flops = 1, .bytes = 2};
  sum += Cost{.flops = 10, .bytes = 20} * 3;
  CHECK(sum == Cost{.flops = 31, .bytes = 62});
}

}  // namespace fsdp::ops
