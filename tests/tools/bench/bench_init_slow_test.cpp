// The values of a model of 124 million parameters on two ranks, at the rate at which a billion take
// less than a minute on two cores.
// Requirements: S4.12.
#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tools/bench/bench_init.h"

namespace fsdp::tools {

TEST_CASE("bench init: GPT-2 124M on two ranks, as fast as a billion parameters in a minute") {
  constexpr double kSecondsOfBillion = 60;
  const InitBenchOptions options = {.model = models::preset("gpt2-124m")};
  uint64_t hashes[2] = {};
  for (const int ranks : {1, 2}) {
    comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
      RankContext rank{.world = world, .local_ranks = ranks};
      const InitBench bench = bench_init(options, rank);
      if (world.rank() != 0) return;
      hashes[ranks - 1] = bench.hash;
      if (ranks == 1) return;
      CHECK(bench.parameters == 124'439'808);
      const double billions = static_cast<double>(bench.parameters) * 1e-9;
      CHECK(bench.set_up_s + bench.values_s < kSecondsOfBillion * billions);
      CHECK(bench.peak_bytes < size_t{4} * 124'439'808);  // nobody holds the whole model
    });
  }
  CHECK(hashes[0] == hashes[1]);
}

}  // namespace fsdp::tools
