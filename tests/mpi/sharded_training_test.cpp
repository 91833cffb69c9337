// Sharded training with ranks as processes gives the bits of one rank that runs all their passes.
#include <doctest/doctest.h>

#include "comm/mpi_transport.h"
#include "tests/support/sharded_run.h"
#include "tests/support/world_checks.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

TEST_CASE("parity over MPI: every strategy gives the bits of one rank") {
  using enum Strategy;
  for (const bool shared_memory : {true, false}) {
    MpiRuntime runtime({.shared_memory = shared_memory});
    Communicator& world = runtime.world();
    RunSpec spec;
    spec.subject = causal_lm(shared_memory ? small_gpt2() : small_llama());
    spec.ranks = world.size();
    spec.training = true;
    spec.fsdp.fixed_order = true;
    const RunResult expected = train_as_one_rank(spec);
    for (const Strategy strategy : {kFullShard, kShardGradOp, kShardOptimizer, kNoShard}) {
      CAPTURE(choice_name(strategy));
      spec.fsdp.strategy = strategy;
      CHECK((train_on(world, spec) == expected));
    }
    spec.fsdp.strategy = kFullShard;
    spec.fsdp.units = {{.match = "blocks.0", .strategy = kShardOptimizer},
                       {.match = "blocks.1", .reshard_group_size = world.size() / 2},
                       {.match = "blocks.2", .reshard_after_forward = false}};
    CHECK((train_on(world, spec) == expected));
    spec.fsdp.units.clear();
    if (world.size() != 4) continue;
    spec.fsdp.shard_size = 2;
    for (const Strategy strategy : {kHybridShard, kHybridShardZero2}) {
      CAPTURE(choice_name(strategy));
      spec.fsdp.strategy = strategy;
      CHECK((train_on(world, spec) == expected));
    }
  }
}

TEST_CASE("over MPI: delays, collectives, accumulation, overflow, norms and the rest") {
  MpiRuntime runtime(HostMemoryOptions{});
  for (const auto check :
       {check_delays, check_collectives, check_accumulation, check_overflow_on_one_rank,
        check_norms, check_several_forwards, check_issue_order, check_host_runs_ahead,
        check_evaluation, check_frozen_and_unused, check_exception}) {
    check(runtime.world());
  }
}

TEST_CASE("over MPI: a rank that runs its blocks in another order, and all are told") {
  MpiRuntime runtime(HostMemoryOptions{});
  if (runtime.world().size() > 1) check_order_divergence(runtime.world());
}
