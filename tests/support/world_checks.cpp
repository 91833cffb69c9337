// The checks of the header, each against a run on one rank, an undisturbed run, or a formula.
#include "tests/support/world_checks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

namespace fsdp::test {
namespace {

RunSpec spec(comm::Communicator& world) {
  RunSpec s;
  s.ranks = world.size();
  s.rows = 24;  // dealt to 1, 2, 3, 4 or 8 ranks
  s.training = true;
  return s;
}

comm::FsdpOptions in_f64(comm::Strategy strategy) {
  return {.strategy = strategy, .param_dtype = DType::kF64, .reduce_dtype = DType::kF64};
}

// Every strategy that this many ranks can have.
std::vector<comm::FsdpOptions> strategies(int ranks) {
  using enum comm::Strategy;
  std::vector<comm::FsdpOptions> out;
  for (const comm::Strategy strategy : {kFullShard, kShardGradOp, kShardOptimizer, kNoShard}) {
    out.push_back(in_f64(strategy));
  }
  for (const comm::Strategy strategy : {kHybridShard, kHybridShardZero2}) {
    if (ranks % 2 != 0 || ranks == 2) continue;
    out.push_back(in_f64(strategy));
    out.back().shard_size = 2;
  }
  return out;
}

// The same on one rank, without a second transport.
RunResult alone(RunSpec s) {
  s.ranks = 1;
  return train(s);
}

// Not a number between the parameters' gradients and behind them: whoever counts it is found out.
void poison_padding(comm::FullySharded& sharded) {
  for (const auto& unit : sharded.units()) {
    Tensor shard = unit->gradients->shard();
    const std::vector<double> values = shard.to_doubles();
    std::vector<double> poisoned(values.size(), std::numeric_limits<double>::quiet_NaN());
    const FlatLayout& layout = unit->parameters.trainable()->layout;
    for (const ShardPiece& piece : layout.pieces(sharded.mesh().shard_index())) {
      std::copy_n(values.begin() + piece.shard_begin, piece.count,
                  poisoned.begin() + piece.shard_begin);
    }
    shard.write(poisoned.data());
  }
}

double norm(const NamedValues& gradients, double power) {
  double sum = 0, largest = 0;
  for (const auto& [name, values] : gradients) {
    for (const double g : values) {
      sum += std::pow(std::abs(g), power);
      largest = std::max(largest, std::abs(g));
    }
  }
  return std::isinf(power) ? largest : std::pow(sum, 1 / power);
}

}  // namespace

void check_delays(comm::Communicator& world) {
  RunSpec s = spec(world);
  const RunResult expected = train_on(world, s);
  s.cpu = [](int rank) { return random_delays(static_cast<uint64_t>(rank) + 1, 1000); };
  for (const bool release_arena : {false, true}) {
    CAPTURE(release_arena);
    s.fsdp.release_arena = release_arena;
    CHECK((train_on(world, s) == expected));
  }
}

void check_collective_counts(comm::Communicator& world) {
  using comm::Collective;
  RankRun run(world, spec(world));
  run.step(0);
  run.wait();
  const comm::Mesh& mesh = run.sharded().mesh();
  const int64_t units = 4;  // the root, gathered once, and three blocks, gathered twice
  CHECK(mesh.gather().count(Collective::kAllGather).calls ==
        (world.size() > 1 ? 2 * units - 1 : 0));
  CHECK(mesh.reduce().count(Collective::kReduceScatter).calls == (world.size() > 1 ? units : 0));
}

void check_overflow_on_one_rank(comm::Communicator& world) {
  RunSpec s = spec(world);
  s.fsdp.detect_overflow = true;
  RankRun run(world, s);
  for (const bool overflow : {false, true, false}) {
    const bool here = overflow && world.rank() == world.size() - 1;
    run.gradient_factor = here ? std::numeric_limits<double>::infinity() : 1;
    run.forward_backward(0);
    CHECK(run.sharded().overflow().item() == (overflow ? 1 : 0));
    run.sharded().finish_step();
  }
}

void check_norms(comm::Communicator& world) {
  RunSpec s = spec(world);
  s.steps = 1;
  s.keep_gradients = true;
  s.fsdp = in_f64(comm::Strategy::kFullShard);
  const NamedValues gradients = alone(s).gradients;  // one copy of every parameter
  for (const comm::FsdpOptions& options : strategies(world.size())) {
    CAPTURE(name_of(options.strategy));
    s.fsdp = options;
    RankRun run(world, s);
    run.forward_backward(0);
    poison_padding(run.sharded());
    for (const double power : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
      CAPTURE(power);
      optim::Clipper clipper(run.sharded().optimizer_shards(), &run.sharded().mesh().scalars(), 1,
                             power);
      clipper.measure();
      const double expected = norm(gradients, power);
      CHECK(std::abs(clipper.norm().item() - expected) <= 1e-10 * expected);
    }
  }
}

void check_frozen_and_unused(comm::Communicator& world) {
  // Block 1 has nothing to train; block 0 is not used in step 1; the head is tied.
  const auto order = [](const Pass& pass) {
    return pass.step == 1 ? std::vector<int>{1, 2} : std::vector<int>{0, 1, 2};
  };
  RunSpec s = spec(world);
  s.subject = block_list(small_gpt2(), order);
  s.frozen = [](const Parameter& p) { return p.name().starts_with("blocks.1."); };
  for (const comm::Strategy strategy : {comm::Strategy::kFullShard, comm::Strategy::kNoShard}) {
    s.fsdp = in_f64(strategy);
    CAPTURE(name_of(strategy));
    const RunResult expected = alone(s), result = train_on(world, s);
    CHECK(loss_difference(result, expected) <= 1e-12);
    CHECK(largest_difference(result.parameters, expected.parameters) <= 1e-10);
  }
}

void check_exception(comm::Communicator& world) {
  RunSpec s = spec(world);
  const RunResult expected = train_on(world, s);
  RankRun run(world, s);
  run.step(0);
  Module* middle = nullptr;
  for (Module* module : run.module().modules()) {
    if (module->name() == "blocks.1.mlp") middle = module;
  }
  middle->set_hooks({.pre_backward = [] { fail("[test] a hook throws"); }});
  CHECK(contains(error_of([&] { run.step(1); }), "a hook throws"));
  middle->set_hooks({});
  run.recover(1);
  run.step(1);
  run.step(2);
  CHECK((run.result() == expected));
}

}  // namespace fsdp::test
