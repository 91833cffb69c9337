// An optimizer whose rule of the hidden matrices needs them whole, AdamW for embeddings, head and
// vectors: the same bits on 1, 2, 3 and 4 ranks under every strategy. In fixed order, because
// otherwise gradients are sums in other orders. The rule by itself:
// tests/optim/matrix_rule_test.cpp.
#include <doctest/doctest.h>

#include "tests/support/orthogonal_rule.h"
#include "tests/support/sharded_run.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

RunResult run(int ranks, const FsdpOptions& options, bool matrices = true) {
  constexpr int kPasses = 12;
  RunSpec spec;
  spec.subject = causal_lm(small_llama());
  spec.ranks = ranks;
  spec.passes = spec.rows = kPasses;
  spec.steps = 2;
  spec.fsdp = options;
  spec.fsdp.micro_steps = kPasses / ranks;
  spec.fsdp.fixed_order = true;
  if (matrices) spec.matrices.rule = std::make_shared<OrthogonalRule>();
  return train(spec);
}

}  // namespace

TEST_CASE("whole matrices: the same bits on 1 to 4 ranks under every strategy") {
  using enum Strategy;
  const RunResult expected = run(1, {});
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Strategy strategy : {kFullShard, kShardGradOp, kShardOptimizer, kNoShard}) {
      CAPTURE(ranks);
      CAPTURE(static_cast<int>(strategy));
      CHECK((run(ranks, {.strategy = strategy}) == expected));
    }
  }
  for (const Strategy strategy : {kHybridShard, kHybridShardZero2}) {
    CHECK((run(4, {.strategy = strategy, .shard_size = 2}) == expected));
  }
}

TEST_CASE("whole matrices: hidden matrices alone take the other rule") {
  const RunResult adamw = run(2, {}, false), both = run(2, {});
  CHECK(adamw.losses[0] == both.losses[0]);
  CHECK(adamw.parameters.at("blocks.0.mlp.up.weight") !=
        both.parameters.at("blocks.0.mlp.up.weight"));
}
