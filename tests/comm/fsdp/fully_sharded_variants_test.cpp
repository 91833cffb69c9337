// Knobs of the schedule change when and where, never what: every variant gives the bits of the
// default. Narrow dtypes change the bits, the same way under every strategy.
#include <limits>

#include <doctest/doctest.h>

#include "comm/fsdp/fully_sharded.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

RunSpec dropout_spec(const models::ModelConfig& model, int ranks) {
  RunSpec s;
  s.subject = causal_lm(model);
  s.ranks = ranks;
  s.training = true;
  s.keep_gradients = true;
  return s;
}

// Variants of `s` that must all give the same bits.
std::vector<std::pair<std::string, FsdpOptions>> variants(const FsdpOptions& base) {
  std::vector<std::pair<std::string, FsdpOptions>> out;
  const auto add = [&](const std::string& what, auto change) {
    FsdpOptions options = base;
    change(options);
    out.emplace_back(what, options);
  };
  // The last is out of reach of a loop that does not end with the units.
  for (const int depth : {0, 2, 3, std::numeric_limits<int>::max()}) {
    add(fmt::format("forward_prefetch {}", depth), [=](auto& o) { o.forward_prefetch = depth; });
  }
  for (const int units : {1, 3}) {
    add(fmt::format("units_in_flight {}", units), [=](auto& o) { o.units_in_flight = units; });
    add(fmt::format("units_in_flight {}, forward_prefetch 3", units), [=](auto& o) {
      o.units_in_flight = units;
      o.forward_prefetch = 3;
    });
  }
  add("backward_prefetch post", [](auto& o) { o.backward_prefetch = BackwardPrefetch::kPost; });
  add("backward_prefetch none", [](auto& o) { o.backward_prefetch = BackwardPrefetch::kNone; });
  add("one stream for gathers and reduces", [](auto& o) { o.separate_reduce = false; });
  add("reshard_after_forward off", [](auto& o) { o.reshard_after_forward = false; });
  add("reshard_after_forward on", [](auto& o) { o.reshard_after_forward = true; });
  add("arena released", [](auto& o) { o.release_arena = true; });
  add("arena released, parameters kept", [](auto& o) {
    o.release_arena = true;
    o.reshard_after_forward = false;
  });
  add("everything at once", [](auto& o) {
    o.release_arena = true;
    o.forward_prefetch = 2;
    o.units_in_flight = 1;
    o.backward_prefetch = BackwardPrefetch::kPost;
    o.separate_reduce = false;
  });
  return out;
}

}  // namespace

TEST_CASE("schedule knobs: the bits of the default") {
  for (const Strategy strategy :
       {Strategy::kFullShard, Strategy::kShardGradOp, Strategy::kHybridShard}) {
    RunSpec s = dropout_spec(small_llama(), strategy == Strategy::kHybridShard ? 4 : 3);
    s.fsdp.strategy = strategy;
    s.fsdp.shard_size = strategy == Strategy::kHybridShard ? 2 : 0;
    const RunResult expected = train(s);
    for (const auto& [what, options] : variants(s.fsdp)) {
      CAPTURE(choice_name(strategy));
      CAPTURE(what);
      s.fsdp = options;
      CHECK((train(s) == expected));
    }
  }
}

TEST_CASE("backward gathers inside a smaller group: the bits of the default") {
  RunSpec s = dropout_spec(small_gpt2(), 4);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    s.fsdp.param_dtype = dtype;
    s.fsdp.reshard_group_size = 0;
    s.fsdp.micro_steps = 1;
    const RunResult expected = train(s);
    for (const int size : {1, 2, 4}) {
      CAPTURE(size);
      s.fsdp.reshard_group_size = size;
      s.fsdp.separate_reduce = size != 1;
      CHECK((train(s) == expected));
    }
    // Values kept in one micro-step must serve only until its backward.
    s.fsdp.micro_steps = 3;
    s.fsdp.reshard_group_size = 0;
    const RunResult several = train(s);
    s.fsdp.reshard_group_size = 2;
    CHECK((train(s) == several));
  }
}

TEST_CASE("strategies that shard the same way give the same bits") {
  for (const DType reduce : {DType::kF32, DType::kBF16}) {
    RunSpec s = dropout_spec(small_gpt2(), 4);
    s.fsdp.param_dtype = DType::kBF16;
    s.fsdp.reduce_dtype = reduce;
    const RunResult full = train(s);
    s.fsdp.strategy = Strategy::kShardGradOp;
    CHECK((train(s) == full));
    s.fsdp.strategy = Strategy::kShardOptimizer;
    CHECK((train(s) == full));
    s.fsdp.shard_size = 2;
    s.fsdp.strategy = Strategy::kHybridShard;
    const RunResult hybrid = train(s);
    s.fsdp.strategy = Strategy::kHybridShardZero2;
    CHECK((train(s) == hybrid));
  }
}

TEST_CASE("without clipping, replicated and sharded training give the same bits") {
  RunSpec s = dropout_spec(small_gpt2(), 3);
  s.clip_norm = 0;  // the norm sums its parts in the order of the shards
  const RunResult full = train(s);
  s.fsdp.strategy = Strategy::kNoShard;
  const RunResult replicated = train(s);
  CHECK((replicated.losses == full.losses));
  CHECK((replicated.gradients == full.gradients));
  CHECK((replicated.parameters == full.parameters));
}

TEST_CASE("division by a factor, by force after the sum, and split: the same average") {
  using enum Strategy;
  struct Case {
    int ranks;
    FsdpOptions options;
  };
  for (const Case& c : {Case{3, {}}, Case{3, {.strategy = kNoShard}},
                        Case{4, {.strategy = kHybridShard, .shard_size = 2}}}) {
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      CAPTURE(choice_name(c.options.strategy));
      CAPTURE(name_of(dtype));
      RunSpec s;
      s.ranks = c.ranks;
      s.fsdp = c.options;
      s.fsdp.param_dtype = s.fsdp.reduce_dtype = dtype;
      s.keep_gradients = true;
      s.steps = 1;
      const NamedValues average = train(s).gradients;
      const double limit = dtype == DType::kF64 ? 1e-14 : 1e-6;
      s.fsdp.force_sum = true;
      CHECK(largest_difference(train(s).gradients, average) <= limit);
      s.fsdp.force_sum = false;
      s.fsdp.split_division = true;
      CHECK(largest_difference(train(s).gradients, average) <= limit);
      s.fsdp.split_division = false;
      // The ranks of a shard group, and numbers that are none.
      for (const double factor : {1., 2., 3., 12., 2.5}) {
        CAPTURE(factor);
        s.fsdp.divide_factor = factor;
        NamedValues scaled = train(s).gradients;
        for (auto& [name, values] : scaled) {
          for (double& v : values) v *= factor / c.ranks;
        }
        CHECK(largest_difference(scaled, average) <= limit);
      }
    }
  }
}

// ---------------------------------------------------------------------------- Narrow dtypes

namespace {

struct Narrow {
  DType param, reduce;
  double loss, norm;  // limits of the relative distance from f32
};

}  // namespace

TEST_CASE("bf16 and f16 stay close to f32, under every strategy alike") {
  RunSpec s;
  s.steps = 5;
  s.ranks = 4;
  const RunResult wide = train(s);
  for (const Narrow& n :
       {Narrow{DType::kBF16, DType::kF32, 1e-2, 3e-2},
        Narrow{DType::kBF16, DType::kBF16, 1e-2, 3e-2},
        Narrow{DType::kF32, DType::kBF16, 5e-3, 2e-2}, Narrow{DType::kF16, DType::kF32, 2e-3, 2e-2},
        Narrow{DType::kF16, DType::kF16, 2e-3, 2e-2}}) {
    CAPTURE(name_of(n.param));
    CAPTURE(name_of(n.reduce));
    s.fsdp.param_dtype = n.param;
    s.fsdp.reduce_dtype = n.reduce;
    for (const Strategy strategy : {Strategy::kFullShard, Strategy::kNoShard,
                                    Strategy::kShardOptimizer, Strategy::kHybridShard}) {
      CAPTURE(choice_name(strategy));
      s.fsdp.strategy = strategy;
      s.fsdp.shard_size = strategy == Strategy::kHybridShard ? 2 : 0;
      const RunResult result = train(s);
      CHECK(loss_difference(result, wide) <= n.loss);
      CHECK(norm_difference(result, wide) <= n.norm);
      CHECK(loss_difference(result, wide) > 0);  // it did run in the narrow dtype
    }
    s.fsdp.strategy = Strategy::kFullShard;
  }
}

TEST_CASE("bf16: micro-steps under every accumulation stay close to the big batch") {
  RunSpec s;
  s.ranks = 2;
  s.fsdp.param_dtype = DType::kBF16;
  for (const DType reduce : {DType::kF32, DType::kBF16}) {
    for (const Strategy strategy : {Strategy::kFullShard, Strategy::kNoShard}) {
      s.fsdp.reduce_dtype = reduce;
      s.fsdp.strategy = strategy;
      s.fsdp.micro_steps = 1;
      const RunResult expected = train(s);
      RunResult each;
      s.fsdp.micro_steps = 3;
      for (const Accumulation accumulation :
           {Accumulation::kReduceEach, Accumulation::kReduceScatterEach,
            Accumulation::kReduceLast}) {
        CAPTURE(name_of(reduce));
        CAPTURE(choice_name(strategy));
        CAPTURE(static_cast<int>(accumulation));
        s.fsdp.accumulation = accumulation;
        const RunResult result = train(s);
        CHECK(loss_difference(result, expected) <= 5e-3);
        CHECK(norm_difference(result, expected) <= 1e-2);
      }
    }
  }
}
