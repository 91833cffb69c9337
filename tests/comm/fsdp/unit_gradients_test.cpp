// Gradients of units: absent ones, micro-steps, narrow reductions, states.
// Requirements: S4.6.
#include "comm/fsdp/unit_gradients.h"

#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

struct Sharding {
  Strategy strategy;
  int ranks;
  int shard_size = 0;
};
constexpr Sharding kShardings[] = {
    {Strategy::kFullShard, 1},          {Strategy::kFullShard, 3}, {Strategy::kShardGradOp, 2},
    {Strategy::kShardOptimizer, 2},     {Strategy::kNoShard, 3},   {Strategy::kHybridShard, 4, 2},
    {Strategy::kHybridShardZero2, 4, 2}};

void apply(const Sharding& sharding, RunSpec& s) {
  s.ranks = sharding.ranks;
  s.fsdp.strategy = sharding.strategy;
  s.fsdp.shard_size = sharding.shard_size;
}

// Calls check(spec) for every sharding, named in messages.
template <typename Check>
void for_each_sharding(RunSpec s, Check check) {
  for (const Sharding& sharding : kShardings) {
    apply(sharding, s);
    CAPTURE(choice_name(s.fsdp.strategy));
    CAPTURE(s.ranks);
    check(s);
  }
}

bool starts_with(const std::string& name, std::string_view prefix) {
  return name.compare(0, prefix.size(), prefix) == 0;
}

double norm_of(const NamedValues& gradients) {
  double sum = 0;
  for (const auto& [name, values] : gradients) {
    for (const double v : values) sum += v * v;
  }
  return std::sqrt(sum);
}

// Updates that each parameter has taken, from the optimizer's own counters.
std::map<std::string, int> updates(RankRun& run) {
  std::map<std::string, int> out;
  run.steps().optimizer().visit_state([&](const optim::StatePart& part) {
    if (part.name == "step") out[part.parameter.name()] = static_cast<int>(part.values.item());
  });
  return out;
}

// Block 1 is left out of step 2 (the last), as is block 0 of step 1.
std::vector<int> skipping(const Pass& pass) {
  if (pass.step == 1) return {1, 2};
  if (pass.step == 2) return {0, 2};
  return {0, 1, 2};
}

RunSpec skipping_spec() {
  RunSpec s;
  s.subject = block_list(small_gpt2(), skipping);
  s.keep_gradients = true;
  s.fsdp.param_dtype = s.fsdp.reduce_dtype = DType::kF64;
  return s;
}

}  // namespace

// ---------------------------------------------------------------------------- Absent gradients

TEST_CASE("a skipped block: its parameters and their t stand still, its old gradient is gone") {
  RunSpec alone_spec = skipping_spec();
  alone_spec.ranks = 1;
  const RunResult alone = train(alone_spec);
  for_each_sharding(skipping_spec(), [&](RunSpec s) {
    NamedValues before;
    std::map<std::string, int> counts;
    s.before_step = [&](RankRun& run, int step) {
      if (step != 2) return;
      NamedValues values = run.result().parameters;
      if (run.rank() == 0) before = std::move(values);
    };
    RunResult result;
    run_local_ranks(s.ranks, [&](Communicator& world) {
      RankRun run(world, s);
      for (int step = 0; step < s.steps; ++step) run.step(step);
      RunResult mine = run.result();
      if (world.rank() != 0) return;
      result = std::move(mine);
      counts = updates(run);
    });
    for (const auto& [name, values] : result.parameters) {
      CAPTURE(name);
      const bool skipped = starts_with(name, "blocks.1.");
      CHECK((values == before.at(name)) == skipped);
      CHECK(counts.at(name) == (skipped || starts_with(name, "blocks.0.") ? 2 : 3));
      const std::vector<double>& gradient = result.gradients.at(name);
      CHECK((gradient == std::vector<double>(gradient.size(), 0.0)) == skipped);
    }
    CHECK(result.norms[2] == doctest::Approx(norm_of(result.gradients)).epsilon(1e-12));
    CHECK(loss_difference(result, alone) <= 1e-12);
    CHECK(norm_difference(result, alone) <= 1e-12);
    CHECK(largest_difference(result.gradients, alone.gradients) <= 1e-11);
    CHECK(largest_difference(result.parameters, alone.parameters) <= 1e-11);
  });
}

TEST_CASE("a unit gathered ahead that nobody uses does not disturb the schedule") {
  RunSpec s = skipping_spec();
  s.steps = 5;
  s.fsdp.forward_prefetch = 0;
  s.fsdp.backward_prefetch = BackwardPrefetch::kNone;
  const RunResult expected = train(s);
  for (const int depth : {1, 2, 3}) {
    for (const BackwardPrefetch when : {BackwardPrefetch::kPre, BackwardPrefetch::kPost}) {
      for (const int in_flight : {1, 2, 3}) {
        CAPTURE(depth);
        CAPTURE(in_flight);
        s.fsdp.forward_prefetch = depth;
        s.fsdp.backward_prefetch = when;
        s.fsdp.units_in_flight = in_flight;
        CHECK((train(s) == expected));
      }
    }
  }
}

TEST_CASE("a block used twice adds both contributions before it is reduced") {
  const auto order = [](const Pass&) { return std::vector<int>{0, 1, 1, 0, 2}; };
  RunSpec s;
  s.subject = block_list(small_llama(), order);
  s.fsdp.param_dtype = s.fsdp.reduce_dtype = DType::kF64;
  s.keep_gradients = true;
  s.ranks = 1;
  const RunResult alone = train(s);
  for_each_sharding(s, [&](RunSpec sharded) {
    const RunResult result = train(sharded);
    CHECK(loss_difference(result, alone) <= 1e-12);
    CHECK(largest_difference(result.gradients, alone.gradients) <= 1e-11);
    CHECK(largest_difference(result.parameters, alone.parameters) <= 1e-11);
  });
  // Recompute records the uses of parameters in backward only.
  for (const RecomputeMode mode : {RecomputeMode::kSelective, RecomputeMode::kFull}) {
    s.subject = block_list(small_llama(), order, mode);
    for_each_sharding(s, [&](RunSpec sharded) {
      const RunResult result = train(sharded);
      CHECK(largest_difference(result.gradients, alone.gradients) <= 1e-11);
    });
    for (const Strategy strategy : {Strategy::kFullShard, Strategy::kNoShard}) {
      s.fsdp.strategy = strategy;
      CHECK(largest_difference(train(s).gradients, alone.gradients) <= 1e-11);
    }
    s.fsdp.strategy = Strategy::kFullShard;
  }
}

// ---------------------------------------------------------------------------- Micro-steps

TEST_CASE("a block that only some micro-steps use") {
  RunSpec s;
  s.subject = block_list(small_gpt2(), [](const Pass& pass) {
    return pass.micro_step == 1 ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 2};
  });
  s.fsdp.param_dtype = s.fsdp.reduce_dtype = DType::kF64;
  s.fsdp.micro_steps = 3;
  s.keep_gradients = true;
  // Rows come to a micro-step by rank: one world size, so that block 1 sees the same ones.
  s.ranks = 4;
  const RunResult expected = train(s);
  CHECK(norm_of(expected.gradients) == doctest::Approx(expected.norms.back()).epsilon(1e-12));
  for_each_sharding(s, [&](RunSpec sharded) {
    if (sharded.ranks != s.ranks) return;
    for (const Accumulation accumulation :
         {Accumulation::kReduceEach, Accumulation::kReduceScatterEach, Accumulation::kReduceLast}) {
      CAPTURE(static_cast<int>(accumulation));
      sharded.fsdp.accumulation = accumulation;
      const RunResult result = train(sharded);
      CHECK(norm_difference(result, expected) <= 1e-12);
      CHECK(largest_difference(result.gradients, expected.gradients) <= 1e-11);
      CHECK(largest_difference(result.parameters, expected.parameters) <= 1e-11);
    }
  });
}

// ---------------------------------------------------------------------------- State machine

TEST_CASE("the states of a unit's gradients over three micro-steps, for every way to accumulate") {
  using enum GradientState;
  using States = std::vector<GradientState>;
  struct Case {
    Accumulation accumulation;
    States before, within;  // a block's forward; its backward, when the MLP's have come
  };
  for (const Case& c : {Case{Accumulation::kReduceEach,
                             {kNone, kReduced, kReduced},
                             {kAccumulating, kAddingToReduced, kAddingToReduced}},
                        Case{Accumulation::kReduceScatterEach,
                             {kNone, kScattered, kScattered},
                             {kAccumulating, kAddingToScattered, kAddingToScattered}},
                        Case{Accumulation::kReduceLast,
                             {kNone, kAccumulating, kAccumulating},
                             {kAccumulating, kAccumulating, kAccumulating}}}) {
    CAPTURE(choice_name(c.accumulation));
    RunSpec s;
    apply({Strategy::kHybridShard, 4, 2}, s);
    s.fsdp.micro_steps = 3;
    s.fsdp.accumulation = c.accumulation;
    run_local_ranks(s.ranks, [&](Communicator& world) {
      RankRun run(world, s);
      const UnitGradients& gradients = *run.sharded().units()[2]->gradients;
      States before, within;
      for (Module* module : run.module().modules()) {
        if (module->name() != "blocks.1.attention") continue;
        module->set_hooks({.pre_forward = [&] { before.push_back(gradients.state()); },
                           .pre_backward = [&] { within.push_back(gradients.state()); }});
      }
      run.forward_backward(0);
      CHECK((before == c.before));
      CHECK((within == c.within));
      CHECK(gradients.state() == kReduced);
      run.update();
      CHECK(gradients.state() == kNone);
    });
  }
}
