// Masters and optimizer state on another backend than the one that computes: the same bits,
// whatever streams of the two backends overtake each other.
#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

struct Setting {
  std::string what;
  int ranks;
  FsdpOptions options;
};

std::vector<Setting> settings() {
  using enum Strategy;
  constexpr DType kBF16 = DType::kBF16;
  return {{"one rank", 1, {}},
          {"one rank, bf16", 1, {.param_dtype = kBF16, .reduce_dtype = kBF16}},
          {"full_shard", 2, {}},
          {"full_shard, bf16 by chance", 2, {.param_dtype = kBF16, .rounding_seed = 3}},
          {"hpZ", 4, {.reshard_group_size = 2}},
          {"arena released", 2, {.release_arena = true}},
          {"shard_optimizer, bf16", 2, {.strategy = kShardOptimizer, .param_dtype = kBF16}},
          {"no_shard", 2, {.strategy = kNoShard}},
          {"hybrid, micro-steps, fixed order",
           4,
           {.strategy = kHybridShard, .shard_size = 2, .micro_steps = 2, .fixed_order = true}}};
}

// Every rank's masters on a backend of their own.
RunResult train_with_masters_elsewhere(const RunSpec& spec, uint64_t seed) {
  std::vector<RunResult> results(static_cast<size_t>(spec.ranks));
  run_local_ranks(spec.ranks, [&](Communicator& world) {
    cpu::CpuBackend masters(random_delays(seed, 300));
    RunSpec mine = spec;
    mine.cpu = [&](int) { return random_delays(seed + 1, 300); };
    mine.fsdp.masters = &masters;
    RankRun run(world, mine);
    for (int step = 0; step < spec.steps; ++step) run.step(step);
    const auto held = [](Backend& backend, MemoryCategory category) {
      return backend.ledger().usage().current[static_cast<size_t>(category)];
    };
    CHECK(held(masters, MemoryCategory::kParameterShard) > 0);
    CHECK(held(masters, MemoryCategory::kOptimizerState) > 0);
    CHECK(held(run.backend(), MemoryCategory::kParameterShard) == 0);
    results[static_cast<size_t>(world.rank())] = run.result();
  });
  for (const RunResult& result : results) CHECK((result == results[0]));
  return results[0];
}

}  // namespace

TEST_CASE("masters on another backend than compute: three steps, the same bits") {
  for (const Setting& setting : settings()) {
    CAPTURE(setting.what);
    RunSpec s;
    s.ranks = setting.ranks;
    s.fsdp = setting.options;
    s.rows = 24;
    s.frozen = [](const Parameter& p) { return p.name().starts_with("blocks.1.attention."); };
    const RunResult expected = train(s);
    for (const uint64_t seed : {1, 2}) CHECK((train_with_masters_elsewhere(s, seed) == expected));
  }
}

TEST_CASE("masters on another backend: after a step that threw, training goes on") {
  RunSpec s;
  const RunResult expected = train(s);
  run_local_ranks(s.ranks, [&](Communicator& world) {
    cpu::CpuBackend masters;
    RunSpec mine = s;
    mine.fsdp.masters = &masters;
    RankRun run(world, mine);
    run.step(0);
    run.bad_label = 1000;
    run.step(1);
    CHECK(contains(error_of([&] { run.wait(); }), "got 1000 in row 0"));
    run.bad_label = 0;
    run.recover(1);
    for (int step = 1; step < s.steps; ++step) run.step(step);
    const RunResult result = run.result();
    CHECK((result == expected));
  });
}
