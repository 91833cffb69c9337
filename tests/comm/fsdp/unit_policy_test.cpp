// Units that differ from the others: which override says what, that keeping or giving back changes
// no bit, and what another dtype of one unit does to values and gradients. Their traffic:
// collective_goldens_test.cpp.
#include <doctest/doctest.h>

#include "tests/support/module_tree.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

constexpr auto kBF16 = DType::kBF16;
constexpr auto kF32 = DType::kF32;

std::vector<PlannedUnit> units_of(Module& model) {
  return plan_units(model, wrap_classes({"LlamaDecoderLayer"}));
}

struct Model {
  cpu::CpuBackend backend;
  models::CausalLM model{small_llama(), backend, DType::kF32, 1};
  std::vector<PlannedUnit> units = units_of(model);
};

UnitOverride computes_in(const std::string& match, DType dtype) {
  return {.match = match, .param_dtype = dtype, .reduce_dtype = dtype};
}

}  // namespace

TEST_CASE("unit policy: by name, by class, by pattern; later overrides over earlier ones") {
  Model m;
  const auto policies = unit_policies(
      {.param_dtype = kBF16,
       .units = {{.match = "*", .reshard_after_forward = false},
                 {.match = "LlamaDecoderLayer", .param_dtype = kF32},
                 {.match = "blocks.[12]", .reduce_dtype = kBF16},
                 {.match = "blocks.2", .param_dtype = kBF16},
                 {.match = "blocks.0", .reshard_after_forward = true, .reshard_group_size = 2}}},
      m.units, {.shards = 4});
  REQUIRE(policies.size() == 4);
  const auto row = [&](size_t i) {
    const UnitPolicy& p = policies[i];
    return fmt::format("{} {} {} {}", p.keeps_parameters(), p.inner_group,
                       fsdp::name_of(p.param_dtype), fsdp::name_of(p.reduce_dtype));
  };
  CHECK(row(0) == "true 0 bf16 f32");
  CHECK(row(1) == "false 2 f32 f32");
  CHECK(row(2) == "true 0 f32 bf16");
  CHECK(row(3) == "true 0 bf16 bf16");
}

TEST_CASE("unit policy: what a single unit cannot have is refused by name") {
  Model m;
  const auto refusal = [&](FsdpOptions options, const UnitOverride& override) {
    options.units = {override};
    return error_of([&] { unit_policies(options, m.units, {.shards = 4}); });
  };
  CHECK(refusal({}, {.match = "block.1"}) ==
        "fsdp.units: no unit matches \"block.1\"; the units are root (LlamaForCausalLM), blocks.0 "
        "(LlamaDecoderLayer), blocks.1 (LlamaDecoderLayer), blocks.2 (LlamaDecoderLayer)");
  using enum Strategy;
  const FsdpOptions hybrid = {.strategy = kHybridShard, .shard_size = 2};
  for (const Strategy strategy : {kNoShard, kHybridShard, kHybridShardZero2}) {
    CHECK(contains(refusal({}, {.match = "root", .strategy = strategy}), "the same groups"));
  }
  for (const Strategy strategy : {kFullShard, kShardGradOp, kShardOptimizer, kNoShard}) {
    CHECK(contains(refusal(hybrid, {.match = "root", .strategy = strategy}), "the same groups"));
  }
  CHECK(refusal(hybrid, {.match = "root", .strategy = kHybridShardZero2}) == "");
  CHECK(refusal({}, {.match = "root", .strategy = kShardOptimizer}) == "");
  CHECK(contains(refusal({.strategy = kNoShard}, {.match = "*", .reshard_after_forward = true}),
                 "fsdp.units: *: no_shard gives nothing back"));
  CHECK(refusal({}, {.match = "root", .param_dtype = DType::kF64}) ==
        "fsdp.units: root: param_dtype: expected a dtype that accumulates in f32 as the others do, "
        "got f64");
  CHECK(contains(refusal({.param_dtype = DType::kF64}, {.match = "root", .reduce_dtype = kF32}),
                 "accumulates in f64"));
  CHECK(refusal({}, {.match = "*", .reshard_group_size = 2}) == "");
  CHECK(refusal({}, {.match = "*", .reshard_group_size = 3, .place = "run.yaml:7"}) ==
        "run.yaml:7: fsdp.units: *: reshard_group_size: expected a divisor of the ranks of a shard "
        "group, 4, got 3");
  CHECK(contains(refusal({}, {.match = "*", .reshard_group_size = 8}), ", 4, got 8"));
  CHECK(refusal({}, {.match = "block.1", .place = "run.yaml:7"})
            .starts_with("run.yaml:7: fsdp.units: no unit matches"));
}

TEST_CASE("unit policy: ranks that disagree about a unit are told which") {
  const std::string message = error_of([] {
    run_local_ranks(2, [](Communicator& world) {
      RunSpec s;
      if (world.rank() == 1) s.fsdp.units = {{.match = "blocks.1", .param_dtype = kBF16}};
      RankRun run(world, s);
    });
  });
  CHECK(contains(message, "the ranks have different options"));
  CHECK(contains(message, "rank 1: unit blocks.1: "));
}

// ---------------------------------------------------------------------------- Keep or give back

TEST_CASE("units that keep parameters or gradients: the same bits as without") {
  using enum Strategy;
  const std::vector<std::vector<UnitOverride>> cases = {
      {{.match = "root", .reshard_after_forward = false}},
      {{.match = "blocks.0", .reshard_after_forward = false}},
      {{.match = "blocks.[01]", .strategy = kShardGradOp},
       {.match = "blocks.2", .strategy = kShardOptimizer}},
      {{.match = "*", .strategy = kShardOptimizer}, {.match = "blocks.1", .strategy = kFullShard}},
      {{.match = "blocks.1", .reshard_group_size = 2},
       {.match = "blocks.2", .reshard_group_size = 1}}};
  for (const int ranks : {2, 3, 4}) {
    for (const int micro_steps : {1, 2}) {
      RunSpec s;
      s.ranks = ranks;
      s.rows = 24;
      s.fsdp.micro_steps = micro_steps;
      const RunResult expected = train(s);
      for (size_t i = 0; i < cases.size(); ++i) {
        if (ranks == 3 && cases[i][0].reshard_group_size) continue;  // 2 does not divide 3
        CAPTURE(ranks);
        CAPTURE(micro_steps);
        CAPTURE(i);
        s.fsdp.units = cases[i];
        CHECK((train(s) == expected));
      }
    }
  }
  RunSpec s;
  s.ranks = 4;
  s.fsdp = {.strategy = kHybridShard, .shard_size = 2, .param_dtype = kBF16};
  const RunResult expected = train(s);
  s.fsdp.units = {{.match = "blocks.1", .strategy = kHybridShardZero2}};
  CHECK((train(s) == expected));
}

// ---------------------------------------------------------------------------- Dtypes

namespace {

RunSpec in_dtype(DType dtype, std::vector<UnitOverride> units) {
  RunSpec s;
  s.subject = causal_lm(small_llama());
  s.fsdp = {.param_dtype = dtype, .reduce_dtype = dtype, .units = std::move(units)};
  s.keep_gradients = true;
  return s;
}

}  // namespace

TEST_CASE("every unit in f32 is a run in f32; two ways to say which ones are, are one") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    const auto run = [&](DType dtype, const std::vector<UnitOverride>& units) {
      RunSpec s = in_dtype(dtype, units);
      s.ranks = ranks;
      return train(s);
    };
    CHECK((run(kBF16, {computes_in("*", kF32)}) == run(kF32, {})));
    CHECK((run(kF32, {computes_in("*", kBF16)}) == run(kBF16, {})));
    CHECK((run(kF32, {computes_in("blocks.1", kBF16)}) ==
           run(kBF16, {computes_in("root", kF32), computes_in("blocks.[02]", kF32)})));
  }
}

TEST_CASE("one unit in bf16 in an f32 model: gradients of all units to the rounding of bf16") {
  RunSpec s = in_dtype(kF32, {});
  s.steps = 1;
  const RunResult exact = train(s), narrow = train(in_dtype(kBF16, {}));
  s.fsdp.units = {computes_in("blocks.1", kBF16)};
  const RunResult mixed = train(s);
  const double apart = largest_difference(mixed.gradients, exact.gradients);
  CHECK(apart > 1e-4);  // it does round
  CHECK(apart < 5e-2);
  CHECK(loss_difference(mixed, exact) < 1e-2);
  CHECK(loss_difference(mixed, exact) > 0);
}

TEST_CASE("a unit in f32 within a bf16 model: recompute casts again, to the same bits") {
  for (const RecomputeMode mode : {RecomputeMode::kSelective, RecomputeMode::kFull}) {
    RunSpec s = in_dtype(kBF16, {computes_in("blocks.1", kF32)});
    s.training = true;
    const RunResult expected = train(s);
    s.subject = causal_lm(small_llama(), mode);
    CHECK((train(s) == expected));
  }
}

TEST_CASE("units within units: norms in f32 inside blocks in bf16") {
  const auto classes = wrap_classes({"GPT2Block", "LayerNorm"});
  const auto run = [&](DType dtype, const std::vector<UnitOverride>& units) {
    RunSpec s = in_dtype(dtype, units);
    s.subject = causal_lm(small_gpt2());
    s.wrap = classes;
    s.steps = 1;
    return train(s);
  };
  const RunResult mixed = run(kBF16, {computes_in("LayerNorm", kF32)});
  CHECK((mixed == run(kF32, {computes_in("*", kBF16), computes_in("LayerNorm", kF32)})));
  const RunResult exact = run(kF32, {});
  CHECK(!(mixed == run(kBF16, {})));
  CHECK(loss_difference(mixed, exact) < 2e-2);
  CHECK(largest_difference(mixed.gradients, exact.gradients) < 1e-1);
}
