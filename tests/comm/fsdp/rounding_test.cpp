// Masters that become bf16 by chance: off unless asked for, alike under every strategy and for any
// number of ranks, and the values that the model computes with are those of the definition.
#include <bit>

#include <doctest/doctest.h>

#include "core/rng.h"
#include "tests/support/sharded_run.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

RunSpec spec_of(int ranks, std::optional<uint64_t> seed, DType dtype = DType::kBF16) {
  RunSpec spec;
  spec.ranks = ranks;
  spec.fsdp = {.param_dtype = dtype, .fixed_order = true, .rounding_seed = seed};
  return spec;
}

}  // namespace

TEST_CASE("rounding: no seed is to nearest, f32 is not rounded, and seeds differ") {
  const RunResult nearest = train(spec_of(2, std::nullopt));
  CHECK_FALSE((train(spec_of(2, 1)) == nearest));
  CHECK_FALSE((train(spec_of(2, 1)) == train(spec_of(2, 2))));
  CHECK((train(spec_of(2, 1)) == train(spec_of(2, 1))));
  CHECK((train(spec_of(2, 1, DType::kF32)) == train(spec_of(2, std::nullopt, DType::kF32))));
}

TEST_CASE("rounding: the same bits as on one rank, whatever the number of ranks") {
  for (const int ranks : {1, 2, 3, 4, 6}) {
    CAPTURE(ranks);
    const RunSpec spec = spec_of(ranks, 3);
    CHECK((train(spec) == train_as_one_rank(spec)));
  }
}

TEST_CASE("rounding: the same bits under every strategy, with several gathers in a step") {
  RunSpec spec = spec_of(4, 3);
  spec.fsdp.micro_steps = 3;
  const RunResult expected = train(spec);
  CHECK(expected.losses.back() < expected.losses.front());
  using enum Strategy;
  for (const Strategy strategy :
       {kShardGradOp, kShardOptimizer, kNoShard, kHybridShard, kHybridShardZero2}) {
    CAPTURE(choice_name(strategy));
    spec.fsdp.strategy = strategy;
    spec.fsdp.shard_size = is_hybrid(strategy) ? 2 : 0;
    CHECK((train(spec) == expected));
  }
  spec.fsdp.strategy = kFullShard;
  spec.fsdp.shard_size = 0;
  spec.fsdp.reshard_group_size = 2;
  CHECK((train(spec) == expected));
  spec.fsdp.reshard_group_size = 0;
  spec.fsdp.release_arena = true;
  CHECK((train(spec) == expected));
}

// With one rank the values stay where the model reads them.
TEST_CASE("rounding: what the model reads is the master of this update, by the definition") {
  run_local_ranks(1, [](Communicator& world) {
    RunSpec spec = spec_of(1, 9);
    spec.subject = causal_lm(small_llama());
    RankRun run(world, spec);
    for (uint32_t update = 0; update < 3; ++update) {
      if (update > 0) run.step(static_cast<int>(update));
      const RoundingStream stream(9, update);
      int64_t differ_from_nearest = 0;
      visit_parameters(run.sharded(), [&](const Parameter& p, const Tensor& master) {
        const std::vector<float> exact = master.to_host<float>();
        const std::vector<double> read = p.value().to_doubles();
        std::vector<double> expected;
        for (size_t i = 0; i < exact.size(); ++i) {
          BFloat16 rounded;
          rounded.bits = rounded_by_chance(
              std::bit_cast<uint32_t>(exact[i]),
              RoundingStream::draw(stream.words(hash_name(p.name()), i / 8), uint32_t(i % 8)));
          expected.push_back(static_cast<double>(static_cast<float>(rounded)));
          differ_from_nearest += rounded.bits != BFloat16(exact[i]).bits;
        }
        CAPTURE(p.name());
        CHECK((read == expected));
      });
      CHECK(differ_from_nearest > 100);
    }
  });
}

TEST_CASE("rounding: frozen parameters are kept in bf16 and have nothing to round") {
  RunSpec spec = spec_of(2, 3);
  spec.frozen = [](const Parameter& p) { return p.name().find("mlp") != std::string::npos; };
  RunSpec nearest = spec;
  nearest.fsdp.rounding_seed = std::nullopt;
  const RunResult by_chance = train(spec), expected = train(nearest);
  bool some = false;
  for (const auto& [name, values] : expected.parameters) {
    if (name.find("mlp") == std::string::npos) continue;
    some = true;
    CHECK((by_chance.parameters.at(name) == values));
  }
  CHECK(some);
}

// ---------------------------------------------------------------------------- Narrow masters

namespace {

// Masters and moments in bf16, or masters in f16.
RunSpec narrow_spec(int ranks, DType param, DType master) {
  RunSpec spec;
  spec.ranks = ranks;
  spec.fsdp = {.param_dtype = param, .master_dtype = master, .fixed_order = true};
  spec.optimizer.state_dtype = DType::kBF16;
  spec.optimizer.rounds_masters_by_chance = true;
  spec.optimizer.rounding_seed = 3;
  return spec;
}
struct Narrow {
  DType param, master;
};
constexpr Narrow kNarrow[] = {{DType::kBF16, DType::kBF16},
                              {DType::kF32, DType::kBF16},
                              {DType::kF16, DType::kF16},
                              {DType::kF32, DType::kF32}};

}  // namespace

TEST_CASE(
    "narrow masters and moments: the same bits as on one rank, whatever the number of ranks") {
  for (const auto& [param, master] : kNarrow) {
    CAPTURE(name_of(param));
    for (const int ranks : {1, 2, 3, 4}) {
      CAPTURE(ranks);
      const RunSpec spec = narrow_spec(ranks, param, master);
      const RunResult result = train(spec);
      CHECK((result == train_as_one_rank(spec)));
      CHECK(result.losses.back() < result.losses.front());
    }
  }
  CHECK_FALSE((train(narrow_spec(2, DType::kF32, DType::kBF16)) ==
               train(narrow_spec(2, DType::kF32, DType::kF32))));
}

TEST_CASE("narrow masters and moments: the same bits under every strategy and offload") {
  for (const auto& [param, master] : kNarrow) {
    CAPTURE(name_of(param));
    RunSpec spec = narrow_spec(4, param, master);
    spec.frozen = [](const Parameter& p) { return p.name().starts_with("blocks.1.attention."); };
    const RunResult expected = train(spec);
    using enum Strategy;
    for (const Strategy strategy :
         {kFullShard, kShardGradOp, kShardOptimizer, kNoShard, kHybridShard, kHybridShardZero2}) {
      for (const Offload offload :
           {Offload::kNone, Offload::kOptimizer, Offload::kAll, Offload::kNvme}) {
        CAPTURE(choice_name(strategy));
        CAPTURE(choice_name(offload));
        spec.fsdp.strategy = strategy;
        spec.fsdp.shard_size = is_hybrid(strategy) ? 2 : 0;
        spec.fsdp.offload = offload;
        spec.fsdp.release_arena = strategy == kShardGradOp;
        CHECK((train(spec) == expected));
      }
    }
  }
}

TEST_CASE("narrow masters: what a model in bf16 reads are the masters themselves") {
  run_local_ranks(1, [](Communicator& world) {
    RankRun run(world, narrow_spec(1, DType::kBF16, DType::kBF16));
    run.step(0);
    visit_parameters(run.sharded(), [&](const Parameter& p, const Tensor& master) {
      CHECK(master.dtype() == DType::kBF16);
      CHECK(master.data() == p.value().data());
    });
  });
}
