// Fixed order: at one world size every strategy gives the same bits.
#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

struct Variant {
  const char* name;
  FsdpOptions options;
};

std::vector<Variant> variants(int ranks) {
  using enum Strategy;
  std::vector<Variant> out = {{"shard_grad_op", {.strategy = kShardGradOp}},
                              {"shard_optimizer", {.strategy = kShardOptimizer}},
                              {"no_shard", {.strategy = kNoShard}},
                              {"no prefetch", {.forward_prefetch = 0, .units_in_flight = 1}}};
  for (const int size : {2, 3}) {
    if (ranks % size != 0 || ranks == size) continue;
    out.push_back({"hybrid", {.strategy = kHybridShard, .shard_size = size}});
    out.push_back({"hybrid_zero2", {.strategy = kHybridShardZero2, .shard_size = size}});
  }
  return out;
}

}  // namespace

TEST_CASE("fixed order: losses, norms and parameters are the same bits under every strategy") {
  for (const int ranks : {2, 3, 4, 6}) {
    for (const auto& [param_dtype, reduce_dtype] :
         {std::pair{DType::kF32, DType::kF32}, std::pair{DType::kF32, DType::kBF16},
          std::pair{DType::kBF16, DType::kF32}, std::pair{DType::kBF16, DType::kBF16}}) {
      CAPTURE(name_of(param_dtype));
      CAPTURE(name_of(reduce_dtype));
      RunSpec spec;
      spec.subject = causal_lm(ranks % 2 == 0 ? small_gpt2() : small_llama());
      spec.ranks = ranks;
      spec.fsdp = {.param_dtype = param_dtype, .reduce_dtype = reduce_dtype, .fixed_order = true};
      const RunResult expected = train(spec);
      CHECK(expected.losses.back() < expected.losses.front());
      for (Variant variant : variants(ranks)) {
        CAPTURE(ranks);
        CAPTURE(variant.name);
        spec.fsdp = variant.options;
        spec.fsdp.param_dtype = param_dtype;
        spec.fsdp.reduce_dtype = reduce_dtype;
        spec.fsdp.fixed_order = true;
        CHECK((train(spec) == expected));
      }
    }
  }
}

TEST_CASE("fixed order: also with micro-steps, reduced once or each time") {
  for (const Accumulation accumulation : {Accumulation::kReduceEach, Accumulation::kReduceLast}) {
    RunSpec spec;
    spec.ranks = 4;
    spec.fsdp = {.accumulation = accumulation, .micro_steps = 3, .fixed_order = true};
    const RunResult expected = train(spec);
    spec.fsdp.strategy = Strategy::kHybridShard;
    spec.fsdp.shard_size = 2;
    CHECK((train(spec) == expected));
    spec.fsdp.strategy = Strategy::kNoShard;
    spec.fsdp.shard_size = 0;
    CHECK((train(spec) == expected));
  }
}

TEST_CASE("without it strategies differ in the last bits: the test above can fail") {
  RunSpec spec;
  spec.ranks = 6;
  const RunResult expected = train(spec);
  spec.fsdp = {.strategy = Strategy::kHybridShard, .shard_size = 2};
  CHECK_FALSE((train(spec) == expected));
}

TEST_CASE("fixed order refuses to add micro-steps before replicas") {
  RunSpec spec;
  spec.ranks = 4;
  spec.fsdp = {.strategy = Strategy::kHybridShard,
               .shard_size = 2,
               .accumulation = Accumulation::kReduceScatterEach,
               .micro_steps = 3,
               .fixed_order = true};
  CHECK_THROWS_WITH_AS(train(spec), doctest::Contains("fixed_order"), Error);
}
