// Initial values: the same for any strategy and number of ranks; from rank 0 alone where the others
// have none; and no rank ever holds more than its shards and one unit.
// Requirements: S1.5, S1.13, S4.12.
#include <algorithm>

#include <doctest/doctest.h>

#include "models/weights.h"
#include "tests/support/sharded_run.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

RunSpec spec_of(int ranks, Strategy strategy) {
  RunSpec s;
  s.ranks = ranks;
  s.fsdp.strategy = strategy;
  s.fsdp.shard_size = strategy == Strategy::kHybridShard ? 2 : 0;
  s.frozen = [](const Parameter& p) { return p.name().starts_with("blocks.1."); };
  return s;
}

NamedValues values_of(RankRun& run) { return run.result().parameters; }

}  // namespace

TEST_CASE("sync_module_states: only rank 0 has weights, every rank ends with them") {
  for (const auto& [ranks, strategy] :
       {std::pair{3, Strategy::kFullShard}, std::pair{2, Strategy::kNoShard},
        std::pair{4, Strategy::kHybridShard}, std::pair{1, Strategy::kFullShard}}) {
    CAPTURE(ranks);
    NamedValues expected;
    run_local_ranks(1, [&](Communicator& world) {
      RankRun run(world, spec_of(1, Strategy::kFullShard));
      initialise(run.sharded(), models::from_scratch(23));
      expected = values_of(run);
    });
    std::vector<NamedValues> got(static_cast<size_t>(ranks));
    run_local_ranks(ranks, [&](Communicator& world) {
      RankRun run(world, spec_of(ranks, strategy));
      models::FillFunction fill;
      if (world.rank() == 0) fill = models::from_scratch(23);
      initialise_from_first_rank(run.sharded(), fill);
      got[static_cast<size_t>(world.rank())] = values_of(run);
    });
    for (const NamedValues& values : got) CHECK((values == expected));
  }
}

TEST_CASE("initial values: a rank needs no memory for them, or one unit's when rank 0 gives them") {
  for (const bool from_first_rank : {false, true}) {
    CAPTURE(from_first_rank);
    run_local_ranks(4, [&](Communicator& world) {
      RankRun run(world, spec_of(4, Strategy::kFullShard));
      run.wait();
      size_t largest = 0;
      for (const auto& unit : run.sharded().units()) {
        for (const ParameterSegment& segment : unit->parameters.segments()) {
          largest = std::max(largest, static_cast<size_t>(segment.layout.numel()) * 4);
        }
      }
      MemoryLedger& ledger = run.backend().ledger();
      ledger.reset_peak();
      const MemoryUsage before = ledger.usage();
      if (from_first_rank) {
        initialise_from_first_rank(
            run.sharded(), world.rank() == 0 ? models::from_scratch(1) : models::FillFunction{});
      } else {
        initialise(run.sharded(), models::from_scratch(1));
      }
      run.wait();
      const MemoryUsage after = ledger.usage();
      const size_t unit = from_first_rank ? rounded_bytes(largest) : 0;
      CHECK(after.total_peak == before.total_current + unit);
      CHECK(after.current == before.current);
    });
  }
}

TEST_CASE("initial values: whatever rank 0 throws while it gives them, no rank waits for ever") {
  const auto throws_at = [](const char* name) -> models::FillFunction {
    return [name](const Parameter& p, int64_t, Tensor&) {
      if (p.name() == name) throw std::bad_alloc();
    };
  };
  run_local_ranks(3, [&](Communicator& world) {
    RankRun run(world, spec_of(3, Strategy::kFullShard));
    const std::string name = run.module().parameters()[3]->name();
    if (world.rank() == 0) {
      CHECK_THROWS_AS(initialise_from_first_rank(run.sharded(), throws_at(name.c_str())),
                      std::bad_alloc);
    } else {
      initialise_from_first_rank(run.sharded(), nullptr);
    }
    run.wait();
  });
}

TEST_CASE("overflow on one rank is known to all before anyone decides, and forgotten afterwards") {
  for (const Strategy strategy :
       {Strategy::kFullShard, Strategy::kNoShard, Strategy::kHybridShard}) {
    RunSpec s;
    s.ranks = 4;
    s.fsdp = {.strategy = strategy,
              .shard_size = strategy == Strategy::kHybridShard ? 2 : 0,
              .param_dtype = DType::kF16,
              .reduce_dtype = DType::kF32,
              .detect_overflow = true};
    run_local_ranks(4, [&](Communicator& world) {
      RankRun run(world, s);
      run.gradient_factor = world.rank() == 2 ? 1e9 : 1;  // finite in f32, beyond f16
      run.forward_backward(0);
      CHECK(run.sharded().overflow().item() == 1);
      run.update();
      run.gradient_factor = 1;
      run.forward_backward(1);
      CHECK(run.sharded().overflow().item() == 0);
      run.update();
      run.wait();
    });
  }
}
