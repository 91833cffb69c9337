// All strategies train the same model: losses, gradient norms and final parameters of 20 steps
// agree with each other and with one rank, and repeat to the bit.
// Requirements: S0.3, S1.9, S4.10.
#include <doctest/doctest.h>

#include "comm/fsdp/fully_sharded.h"
#include "tests/support/sharded_run.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

constexpr Strategy kSharding[] = {Strategy::kFullShard, Strategy::kShardGradOp,
                                  Strategy::kShardOptimizer, Strategy::kNoShard};
constexpr Strategy kHybrid[] = {Strategy::kHybridShard, Strategy::kHybridShardZero2};

RunSpec spec(const models::ModelConfig& model, DType dtype) {
  RunSpec s;
  s.subject = causal_lm(model);
  s.steps = 20;
  s.fsdp.param_dtype = s.fsdp.reduce_dtype = dtype;
  return s;
}

void check_close(const RunResult& a, const RunResult& b, double tolerance) {
  CHECK(loss_difference(a, b) <= tolerance);
  CHECK(norm_difference(a, b) <= tolerance);
  CHECK(largest_difference(a.parameters, b.parameters) <= tolerance);
}

// Every strategy on each of these world sizes, the hybrid ones on 2 x 2, against one rank.
void check_parity(const models::ModelConfig& model, DType dtype, double tolerance,
                  const std::vector<int>& world_sizes, bool twice) {
  RunSpec s = spec(model, dtype);
  s.ranks = 1;
  const RunResult alone = train(s);
  CHECK(alone.losses.back() <= 0.8 * alone.losses.front());
  const auto check = [&] {
    CAPTURE(s.ranks);
    CAPTURE(choice_name(s.fsdp.strategy));
    const RunResult result = train(s);
    check_close(result, alone, tolerance);
    if (twice) CHECK((train(s) == result));
  };
  for (const int ranks : world_sizes) {
    s.ranks = ranks;
    for (const Strategy strategy : kSharding) {
      s.fsdp.strategy = strategy;
      check();
    }
  }
  s.ranks = 4;
  s.fsdp.shard_size = 2;
  for (const Strategy strategy : kHybrid) {
    s.fsdp.strategy = strategy;
    check();
  }
}

}  // namespace

TEST_CASE("gpt2, f32: strategies and world sizes agree and repeat") {
  check_parity(small_gpt2(), DType::kF32, 1e-5, {2, 3, 4}, true);
}
TEST_CASE("llama, f32: strategies and world sizes agree") {
  check_parity(small_llama(), DType::kF32, 1e-5, {2, 3, 4}, false);
}
TEST_CASE("gpt2, f64: strategies and world sizes agree") {
  check_parity(small_gpt2(), DType::kF64, 1e-11, {3}, false);
}
TEST_CASE("llama, f64: strategies and world sizes agree") {
  check_parity(small_llama(), DType::kF64, 1e-11, {4}, false);
}
