// Initial values: their time and memory are reported, and their hash is that of a training
// session's checkpoint, whatever the ranks and the strategy. Requirements: S4.12.
#include "tools/bench/bench_init.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/sharded_run.h"
#include "tools/checkpoint/owned_state.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {
namespace {

InitBench bench_on(int ranks, const InitBenchOptions& options) {
  InitBench out;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    RankContext rank{.world = world, .local_ranks = ranks};
    const InitBench mine = bench_init(options, rank);
    CHECK(mine.values_s > 0);
    CHECK(mine.set_up_s > 0);
    if (world.rank() == 0) out = mine;
  });
  return out;
}

}  // namespace

TEST_CASE("bench init: one hash on any ranks and under any strategy, another with another seed") {
  InitBenchOptions options = {.model = test::small_gpt2(), .seed = 5};
  const InitBench one = bench_on(1, options);
  CHECK(one.parameters == options.model.parameter_count());
  CHECK(one.hash != 0);
  for (const comm::Strategy strategy :
       {comm::Strategy::kFullShard, comm::Strategy::kShardGradOp, comm::Strategy::kNoShard}) {
    options.strategy = strategy;
    for (const int ranks : {2, 3}) CHECK(bench_on(ranks, options).hash == one.hash);
  }
  options.seed = 6;
  CHECK(bench_on(2, options).hash != one.hash);
}

TEST_CASE("bench init: the hash is that of a training session's weights") {
  const InitBenchOptions options = {.model = test::small_gpt2(), .seed = 5};
  uint64_t trained = 0;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    PlacedOptions training;
    training.model = options.model;
    training.max_length = 8;
    Session session = place_session(world, training);
    session.initialise(models::from_scratch(5, options.model.padding_row));
    const uint64_t hash = hash_state(session).weights;
    if (world.rank() == 0) trained = hash;
  });
  CHECK(bench_on(3, options).hash == trained);
}

TEST_CASE("bench init: a rank of four holds a part of the values, and no optimizer") {
  InitBenchOptions options = {.model = test::small_gpt2()};
  options.model.hidden = 64;
  options.model.ffn = 256;
  options.model.layers = 16;
  const auto whole = static_cast<size_t>(4 * options.model.parameter_count());
  const InitBench one = bench_on(1, options), four = bench_on(4, options);
  CHECK(one.peak_bytes >= whole);
  CHECK(one.peak_bytes < 2 * whole);  // Adam alone would have two more
  // A quarter of the masters, and room for two gathered units.
  CHECK(four.peak_bytes < one.peak_bytes / 2);
}

}  // namespace fsdp::tools
