// Fixed order: passes 0, 1, 2, ... of a step are added in this order, so that every number of ranks
// and every strategy gives the same bits. Sums of other orders are other bits: a chain over 24
// passes that comes out right by chance does not exist.
// Requirements: S0.3, S1.9, S4.10.
#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

using enum Strategy;

struct Variant {
  std::string name;
  FsdpOptions options;
};

std::vector<Variant> variants(int ranks) {
  std::vector<Variant> out = {{"full_shard", {}},
                              {"shard_grad_op", {.strategy = kShardGradOp}},
                              {"shard_optimizer", {.strategy = kShardOptimizer}},
                              {"no_shard", {.strategy = kNoShard}},
                              {"no prefetch", {.forward_prefetch = 0, .units_in_flight = 1}},
                              {"one stream", {.separate_reduce = false, .release_arena = true}}};
  for (const int size : {2, 3}) {
    if (ranks % size != 0 || ranks == size) continue;
    out.push_back({fmt::format("hybrid {}", size), {.strategy = kHybridShard, .shard_size = size}});
    out.push_back({fmt::format("hybrid_zero2 {}", size),
                   {.strategy = kHybridShardZero2, .shard_size = size}});
  }
  return out;
}

// One pass after the other on one rank, and the same passes on `ranks` ranks.
RunSpec spec_of(int ranks, int passes, const FsdpOptions& options = {}) {
  RunSpec spec;
  spec.ranks = ranks;
  spec.passes = passes;
  spec.rows = passes;
  spec.steps = 2;
  spec.training = true;  // dropout is keyed by the sample
  spec.fsdp = options;
  spec.fsdp.micro_steps = (passes + ranks - 1) / ranks;
  spec.fsdp.fixed_order = true;
  return spec;
}

struct Kind {
  DType param, reduce;
};

}  // namespace

TEST_CASE("fixed order: the same bits on 1, 2, 3, 4, 6 and 8 ranks under every strategy") {
  constexpr int kPasses = 24;
  for (const Kind& kind : {Kind{DType::kF32, DType::kF32}, Kind{DType::kBF16, DType::kBF16},
                           Kind{DType::kF16, DType::kF16}}) {
    const auto run = [&](int ranks, FsdpOptions options) {
      options.param_dtype = kind.param;
      options.reduce_dtype = kind.reduce;
      RunSpec spec = spec_of(ranks, kPasses, options);
      spec.subject = causal_lm(kind.param == DType::kF32 ? small_gpt2() : small_llama());
      return train(spec);
    };
    const RunResult expected = run(1, {});
    for (const int ranks : {1, 2, 3, 4, 6, 8}) {
      for (const Variant& variant : variants(ranks)) {
        CAPTURE(name_of(kind.param));
        CAPTURE(ranks);
        CAPTURE(variant.name);
        CHECK((run(ranks, variant.options) == expected));
      }
    }
  }
}

TEST_CASE("fixed order: ranks without a pass in the last micro-step are left out") {
  constexpr int kPasses = 7;
  const RunResult expected = train(spec_of(1, kPasses));
  for (const int ranks : {2, 3, 4, 5, 6, 7}) {
    for (const Variant& variant : variants(ranks)) {
      CAPTURE(ranks);
      CAPTURE(variant.name);
      CHECK((train(spec_of(ranks, kPasses, variant.options)) == expected));
    }
  }
}

TEST_CASE("fixed order: sums are wide whatever reduce_dtype is") {
  for (const Kind& kind : {Kind{DType::kF32, DType::kBF16}, Kind{DType::kBF16, DType::kF32},
                           Kind{DType::kF64, DType::kF64}}) {
    CAPTURE(name_of(kind.reduce));
    const FsdpOptions options = {.param_dtype = kind.param, .reduce_dtype = kind.reduce};
    const RunResult expected = train(spec_of(1, 6, options));
    CHECK((train(spec_of(3, 6, options)) == expected));
    FsdpOptions hybrid = options;
    hybrid.strategy = kHybridShard;
    hybrid.shard_size = 2;
    CHECK((train(spec_of(4, 6, hybrid)) == expected));
  }
}

TEST_CASE("fixed order: random delays on all streams change no bit") {
  const RunResult expected = train(spec_of(1, 12));
  for (const FsdpOptions& options :
       {FsdpOptions{}, FsdpOptions{.strategy = kNoShard},
        FsdpOptions{.strategy = kHybridShard, .shard_size = 2, .release_arena = true},
        FsdpOptions{.strategy = kHybridShardZero2, .shard_size = 2, .separate_reduce = false}}) {
    for (const uint64_t seed : {1, 2}) {
      RunSpec spec = spec_of(4, 12, options);
      spec.cpu = [&](int rank) {
        return random_delays(seed * 100 + static_cast<uint64_t>(rank), 300);
      };
      CAPTURE(choice_name(options.strategy));
      CHECK((train(spec) == expected));
    }
  }
}

TEST_CASE("without it numbers of ranks and strategies differ in the last bits") {
  const auto run = [](int ranks, FsdpOptions options) {
    options.micro_steps = 12 / ranks;
    RunSpec spec;
    spec.ranks = ranks;
    spec.fsdp = options;
    return train(spec);
  };
  const RunResult expected = run(1, {});
  CHECK_FALSE((run(6, {}) == expected));
  CHECK_FALSE((run(6, {}) == run(6, {.strategy = kHybridShard, .shard_size = 2})));
}

TEST_CASE("fixed order: another order of the passes is other bits") {
  RunSpec spec = spec_of(1, 12);
  const RunResult expected = train(spec);
  spec.passes = 0;  // two passes at once are another sum
  spec.fsdp.micro_steps = 6;
  CHECK_FALSE((train(spec) == expected));
}
