// Parameters of one unit: what may be frozen, what a frozen one does not cost, and the state
// machine.
#include "comm/fsdp/unit_parameters.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

size_t now(RankRun& run, MemoryCategory category) {
  return run.backend().ledger().usage().current[static_cast<size_t>(category)];
}

struct FrozenCase {
  std::string what;
  std::function<bool(const Parameter&)> frozen;
  int reduced_units;  // units with anything trainable, of root and three blocks
};

bool starts_with(const Parameter& p, std::string_view prefix) {
  return p.name().compare(0, prefix.size(), prefix) == 0;
}

std::vector<FrozenCase> frozen_cases() {
  return {
      {"attention of block 1",
       [](const Parameter& p) { return starts_with(p, "blocks.1.attention."); }, 4},
      {"all of block 2", [](const Parameter& p) { return starts_with(p, "blocks.2."); }, 3},
      // Nothing before block 1 needs a gradient: backward ends there.
      {"tables and block 0",
       [](const Parameter& p) {
         return starts_with(p, "embedding.") || starts_with(p, "blocks.0.");
       },
       3},
      {"all but one bias of block 1",
       [](const Parameter& p) { return p.name() != "blocks.1.mlp.up.bias"; }, 1},
      {"all but the final norm", [](const Parameter& p) { return !starts_with(p, "final_norm."); },
       1},
  };
}

// What the run reports besides its result.
struct StepTotals {
  int64_t reduces = 0;  // reduce_scatters
  int64_t reduced_bytes = 0;
  int64_t expected_reduced_bytes = 0;  // of one step
  size_t parameter_shard = 0, expected_parameter_shard = 0;
  size_t gradient_shards = 0;
};

StepTotals cost_of(RankRun& run) {
  const FullySharded& sharded = run.sharded();
  const DType dtype = sharded.options().param_dtype;
  const CollectiveCount& reduces = sharded.mesh().reduce().count(Collective::kReduceScatter);
  StepTotals cost;
  cost.reduces = reduces.calls;
  cost.reduced_bytes = reduces.bytes;
  cost.parameter_shard = now(run, MemoryCategory::kParameterShard);
  for (const auto& unit : sharded.units()) {
    for (const ParameterSegment& s : unit->parameters.segments()) {
      // A frozen shard is kept in the compute dtype: there is no wide master.
      const size_t width = s.trainable ? sizeof(float) : size_of(dtype);
      cost.expected_parameter_shard +=
          rounded_bytes(static_cast<size_t>(s.layout.shard_numel()) * width);
      if (!s.trainable) continue;
      cost.expected_reduced_bytes +=
          s.layout.numel() * static_cast<int64_t>(size_of(sharded.options().reduce_dtype));
      ++cost.gradient_shards;
    }
  }
  return cost;
}

NamedValues initial_values(RunSpec s) {
  s.steps = 0;
  return train(s).parameters;
}

}  // namespace

TEST_CASE("frozen parameters: unchanged, and no wide master, gradient or reduction for them") {
  for (const FrozenCase& c : frozen_cases()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      CAPTURE(c.what);
      CAPTURE(name_of(dtype));
      RunSpec s;
      s.fsdp.param_dtype = dtype;
      s.frozen = c.frozen;
      s.ranks = 1;
      const RunResult alone = train(s);
      s.ranks = 3;
      const NamedValues before = initial_values(s);
      StepTotals cost;
      RunResult result;
      run_local_ranks(s.ranks, [&](Communicator& world) {
        RankRun run(world, s);
        for (int step = 0; step < s.steps; ++step) run.step(step);
        run.wait();
        const StepTotals mine = cost_of(run);
        RunResult all = run.result();
        if (world.rank() != 1) return;
        cost = mine;
        result = std::move(all);
      });
      CHECK(cost.reduces == s.steps * c.reduced_units);
      CHECK(cost.reduced_bytes == s.steps * cost.expected_reduced_bytes);
      CHECK(cost.gradient_shards == static_cast<size_t>(c.reduced_units));
      CHECK(cost.parameter_shard == cost.expected_parameter_shard);
      for (const auto& [name, values] : result.parameters) {
        CAPTURE(name);
        const Parameter probe(name, Shape{1}, {}, false);
        CHECK((values == before.at(name)) == c.frozen(probe));
      }
      const double tolerance = dtype == DType::kF32 ? 1e-5 : 3e-2;
      CHECK(loss_difference(result, alone) <= tolerance);
      CHECK(norm_difference(result, alone) <= tolerance);
    }
  }
}

TEST_CASE("every strategy agrees about frozen parameters") {
  for (const FrozenCase& c : frozen_cases()) {
    CAPTURE(c.what);
    RunSpec s;
    s.frozen = c.frozen;
    s.fsdp.param_dtype = s.fsdp.reduce_dtype = DType::kF64;
    s.ranks = 1;
    const RunResult alone = train(s);
    s.ranks = 4;
    for (const Strategy strategy :
         {Strategy::kFullShard, Strategy::kShardGradOp, Strategy::kShardOptimizer,
          Strategy::kNoShard, Strategy::kHybridShard, Strategy::kHybridShardZero2}) {
      CAPTURE(choice_name(strategy));
      const bool hybrid = strategy >= Strategy::kHybridShard;
      s.fsdp.strategy = strategy;
      s.fsdp.shard_size = hybrid ? 2 : 0;
      const RunResult result = train(s);
      CHECK(loss_difference(result, alone) <= 1e-12);
      CHECK(norm_difference(result, alone) <= 1e-11);
      CHECK(largest_difference(result.parameters, alone.parameters) <= 1e-11);
    }
  }
}

// ---------------------------------------------------------------------------- State machine

TEST_CASE("SHARDED, GATHERING, UNSHARDED and back, with values where they belong") {
  RunSpec s;
  s.ranks = 3;
  run_local_ranks(s.ranks, [&](Communicator& world) {
    RankRun run(world, s);
    UnitParameters& unit = run.sharded().units()[1]->parameters;
    const Parameter& parameter = *unit.segments()[0].layout.parameters()[2].parameter;
    const std::vector<double> expected = run.result().parameters.at(parameter.name());
    for (int round = 0; round < 3; ++round) {
      CHECK(unit.state() == ParameterState::kSharded);
      CHECK(contains(error_of([&] { parameter.value().data(); }), "parameters of unit blocks.0: "));
      CHECK(unit.unshard());
      CHECK(unit.state() == ParameterState::kGathering);
      CHECK(unit.unshard());  // again: nothing happens
      if (round != 1) {       // in between, a gather that nobody waited for
        unit.wait_unsharded();
        CHECK(unit.state() == ParameterState::kUnsharded);
        CHECK((parameter.value().to_doubles() == expected));
      }
      unit.reshard();
      unit.reshard();
    }
  });
}

TEST_CASE("without a free buffer unsharding says so, and waiting for the values is an error") {
  RunSpec s;
  s.ranks = 2;
  s.fsdp.units_in_flight = 2;
  run_local_ranks(s.ranks, [&](Communicator& world) {
    RankRun run(world, s);
    const auto& units = run.sharded().units();
    CHECK(units[1]->parameters.unshard());
    CHECK(units[2]->parameters.unshard());
    UnitParameters& third = units[3]->parameters;
    CHECK_FALSE(third.unshard());
    CHECK(third.state() == ParameterState::kSharded);
    CHECK(error_of([&] { third.wait_unsharded(); }) ==
          "[fsdp] unit blocks.2: waited for without a gather");
    units[1]->parameters.reshard();
    CHECK(third.unshard());
    run.sharded().reset();
  });
}

TEST_CASE("units that are used together need a buffer each") {
  run_local_ranks(2, [&](Communicator& world) {
    RunSpec s;
    models::ModelConfig config = small_gpt2();
    config.tied_head = false;
    s.subject = causal_lm(config);
    s.wrap = wrap_classes({"Embedding"});  // of tokens and of positions
    s.fsdp.units_in_flight = 1;
    RankRun run(world, s);
    const std::string refusal = error_of([&] { run.step(0); });
    CHECK(refusal.starts_with("[fsdp] unit embedding.positions: "));
    CHECK(refusal.ends_with("units_in_flight: expected more than 1"));
    run.recover(0);
  });
}

TEST_CASE("hpZ: RESHARDED between forward and backward, also after reset(); SHARDED after a step") {
  run_local_ranks(4, [&](Communicator& world) {
    RunSpec s;
    s.ranks = 4;
    s.fsdp.reshard_group_size = 2;
    RankRun run(world, s);
    const auto check = [&](ParameterState block) {
      const auto& units = run.sharded().units();
      CHECK(units[0]->parameters.state() == ParameterState::kSharded);
      for (size_t i = 1; i < units.size(); ++i) CHECK(units[i]->parameters.state() == block);
    };
    run.step(0);
    check(ParameterState::kSharded);
    evaluate_between_steps(run, 1);
    check(ParameterState::kResharded);
    run.sharded().recover();
    check(ParameterState::kSharded);
    const CollectiveCount& gathers = run.sharded().mesh().gather().count(Collective::kAllGather);
    const int64_t before = gathers.calls;
    evaluate_between_steps(run, 1);
    CHECK(gathers.calls == before + 2 + 3);  // the root for every pass, a block for the first one
    run.step(1);
    CHECK(gathers.calls == before + 2 + 3 + 1);  // what was RESHARDED is gathered inside its group
    check(ParameterState::kSharded);
  });
}

namespace {

// Gathers that come late.
RunSpec slow_gathers(const FsdpOptions& options) {
  RunSpec s;
  s.fsdp = options;
  s.cpu = [](int) {
    cpu::CpuOptions o;
    o.delay = [](const std::string& stream, std::string_view) {
      return stream == "gather" ? 10000 : 0;
    };
    return o;
  };
  return s;
}

}  // namespace

TEST_CASE("a gather that nobody used ends before its memory is another's") {
  run_local_ranks(2, [&](Communicator& world) {
    RankRun run(world, slow_gathers({.release_arena = true}));
    UnitParameters& unit = run.sharded().units()[1]->parameters;
    CHECK(unit.unshard());
    const void* memory = unit.segments()[0].unsharded->data();
    run.sharded().reset();  // gives the arena back
    std::vector<Tensor> others;
    do {
      const auto numel = static_cast<int64_t>(unit.arena_bytes() / sizeof(float));
      others.push_back(Tensor::zeros(run.backend(), Shape{numel}, DType::kF32));
    } while (others.back().data() != memory && others.size() < 100);
    REQUIRE(others.back().data() == memory);
    run.sharded().recover();  // waits for all streams
    CHECK(others.back().to_doubles() == std::vector<double>(unit.arena_bytes() / sizeof(float)));
  });
}

TEST_CASE("a gather of resident values that nobody used ends before the optimizer writes them") {
  run_local_ranks(2, [&](Communicator& world) {
    RankRun run(world, slow_gathers({.strategy = Strategy::kShardOptimizer}));
    UnitParameters& unit = run.sharded().units()[1]->parameters;
    const ParameterSegment& segment = unit.segments()[0];
    const Tensor all(segment.unsharded, 0, Shape{segment.layout.numel()}, DType::kF32);
    std::vector<double> expected;
    for (const bool used : {true, false}) {
      CHECK(unit.unshard());
      if (used) unit.wait_unsharded();
      unit.reshard();
      if (used) expected = all.to_doubles();
      if (used) unit.expire();
    }
    Tensor master = segment.master;
    run.backend().fill_zero(run.backend().compute_stream(), master.data(), master.bytes());
    run.sharded().recover();  // waits for all streams
    const auto count = segment.layout.shard_numel();
    std::fill_n(expected.begin() + world.rank() * count, count, 0);
    CHECK(all.to_doubles() == expected);
  });
}

TEST_CASE("a unit has the same address in every step") {
  RunSpec s;
  s.ranks = 2;
  run_local_ranks(s.ranks, [&](Communicator& world) {
    RankRun run(world, s);
    std::map<std::string, std::vector<const void*>> seen;
    for (Module* module : run.module().modules()) {
      if (module->class_name() != "GPT2MLP") continue;
      const Parameter* parameter = module->parameters()[0];
      const auto note = [&seen, parameter] {
        seen[parameter->name()].push_back(parameter->value().data());
      };
      module->set_hooks({note, nullptr, note, nullptr});  // before forward and before backward
    }
    for (int step = 0; step < 3; ++step) run.step(step);
    REQUIRE(seen.size() == 3);
    for (const auto& [name, addresses] : seen) {
      CAPTURE(name);
      REQUIRE(addresses.size() == 6);
      for (size_t i = 2; i < addresses.size(); ++i) CHECK(addresses[i] == addresses[i - 2]);
    }
  });
}

TEST_CASE("options that do not fit together are refused before memory is asked for") {
  const std::string refusal = error_of([&] {
    RunSpec spec;
    spec.fsdp.shard_size = 2;
    run_local_ranks(4, [&](Communicator& world) { RankRun run(world, spec); });
  });
  CHECK(contains(refusal, "expected 0 unless the strategy is hybrid, got 2"));
}
