// Parity with one rank, to the bit: sharded training is the training of one rank that runs every
// rank's part of the batch and adds the gradients in rank order. Guards against anything that
// sharding could lose or mix up: padding, slots, casts, the order of sums, the division.
// Requirements: S0.3, S4.10.
#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

TEST_CASE("parity: 1, 2, 3, 4 and 8 ranks give the bits of one rank") {
  using enum Strategy;
  for (const auto& model : {small_gpt2(), small_llama()}) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      RunSpec spec;
      spec.subject = causal_lm(model);
      spec.ranks = ranks;
      spec.rows = 24;
      spec.training = true;  // dropout follows the sample, not the rank
      spec.fsdp.fixed_order = true;
      const RunResult expected = train_as_one_rank(spec);
      CHECK(expected.losses.back() < expected.losses.front());
      for (const Strategy strategy : {kFullShard, kShardGradOp, kShardOptimizer, kNoShard}) {
        CAPTURE(model.family);
        CAPTURE(ranks);
        CAPTURE(choice_name(strategy));
        spec.fsdp.strategy = strategy;
        CHECK((train(spec) == expected));
      }
    }
  }
}

TEST_CASE("parity: the bits of one rank with every optimizer") {
  using Kind = optim::OptimizerKind;
  std::vector<std::vector<double>> losses;
  for (const optim::OptimizerOptions& optimizer :
       std::vector<optim::OptimizerOptions>{{.epsilon = 1e-4},
                                            {.kind = Kind::kAdam, .epsilon = 1e-4},
                                            {.kind = Kind::kAdamax, .epsilon = 1e-4},
                                            {.kind = Kind::kAdadelta, .epsilon = 1e-6},
                                            {.kind = Kind::kSgd},
                                            {.kind = Kind::kSgd, .momentum = 0.9}}) {
    RunSpec spec;
    spec.ranks = 3;
    spec.optimizer = optimizer;
    spec.fsdp.fixed_order = true;
    const RunResult expected = train_as_one_rank(spec);
    CHECK(expected.losses.back() < expected.losses.front());
    for (const Strategy strategy : {Strategy::kFullShard, Strategy::kNoShard}) {
      CAPTURE(optim::name_of(optimizer.kind));
      CAPTURE(choice_name(strategy));
      spec.fsdp.strategy = strategy;
      CHECK((train(spec) == expected));
    }
    CHECK(std::count(losses.begin(), losses.end(), expected.losses) == 0);  // another optimizer's
    losses.push_back(expected.losses);
  }
}

TEST_CASE("parity: the bits of one rank in f64 and bf16, too") {
  using enum DType;
  for (const auto& [param_dtype, reduce_dtype] :
       {std::pair{kF64, kF64}, std::pair{kF32, kBF16}, std::pair{kBF16, kF32},
        std::pair{kBF16, kBF16}}) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      RunSpec spec;
      spec.ranks = ranks;
      spec.rows = 24;
      spec.fsdp = {.param_dtype = param_dtype, .reduce_dtype = reduce_dtype, .fixed_order = true};
      CAPTURE(name_of(param_dtype));
      CAPTURE(name_of(reduce_dtype));
      CAPTURE(ranks);
      const RunResult expected = train_as_one_rank(spec);
      CHECK(expected.losses.back() < expected.losses.front());
      for (const Strategy strategy :
           {Strategy::kFullShard, Strategy::kShardOptimizer, Strategy::kNoShard}) {
        CAPTURE(choice_name(strategy));
        spec.fsdp.strategy = strategy;
        CHECK((train(spec) == expected));
      }
      if (ranks != 4) continue;
      spec.fsdp.strategy = Strategy::kHybridShard;
      spec.fsdp.shard_size = 2;
      CHECK((train(spec) == expected));
    }
  }
}

TEST_CASE("parity: hybrid meshes of 4 and 8 ranks give the bits of one rank") {
  for (const int ranks : {4, 8}) {
    for (const int shard_size : {2, 4}) {
      if (shard_size == ranks) continue;
      RunSpec spec;
      spec.ranks = ranks;
      spec.rows = 24;
      spec.fsdp = {
          .strategy = Strategy::kHybridShard, .shard_size = shard_size, .fixed_order = true};
      CAPTURE(ranks);
      CAPTURE(shard_size);
      CHECK((train(spec) == train_as_one_rank(spec)));
    }
  }
}

TEST_CASE("parity: another order of the rows is another result, so that the tests above can fail") {
  RunSpec spec;
  spec.ranks = 4;
  spec.rows = 24;
  spec.fsdp.fixed_order = true;
  RunSpec other = spec;
  other.ranks = 2;
  CHECK_FALSE((train(other) == train_as_one_rank(spec)));
}
