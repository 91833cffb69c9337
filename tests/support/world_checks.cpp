// The checks of the header, each against a run on one rank, an undisturbed run, or a formula.
#include "tests/support/world_checks.h"

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

// The same on one rank, without a second transport.
RunResult alone(RunSpec s) {
  s.ranks = 1;
  return train(s);
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
  RankRun run(world, spec(world));
  run.forward_backward(0);
  std::vector<double> gradients;
  run.sharded().visit_gradients([&](const Parameter&, const Tensor& values) {
    const std::vector<double> own = values.to_doubles();
    gradients.insert(gradients.end(), own.begin(), own.end());
  });
  for (const double power : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    double sum = 0, largest = 0;
    for (const double g : gradients) {
      sum += std::isinf(power) ? 0 : std::pow(std::abs(g), power);
      largest = std::max(largest, std::abs(g));
    }
    optim::Clipper clipper(run.sharded().optimizer_shards(), &run.sharded().mesh().scalars(), 1,
                           power);
    clipper.measure();
    const double expected = std::isinf(power) ? largest : std::pow(sum, 1 / power);
    CAPTURE(power);
    CHECK(std::abs(clipper.norm().item() - expected) <= 1e-5 * expected);
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
