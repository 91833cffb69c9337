// The values of a model of 124 million parameters on two ranks, at the rate at which a billion take
// less than a minute on two cores.
// Requirements: S4.12.
#include <ctime>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tools/bench/bench_init.h"

namespace fsdp::tools {

TEST_CASE("bench init: GPT-2 124M on two ranks, as fast as a billion parameters in a minute") {
  constexpr double kSecondsOfBillion = 60;
  const InitBenchOptions options = {.model = models::preset("gpt2-124m")};
  uint64_t hashes[2] = {};
  for (const int ranks : {1, 2}) {
    // Processor time, which other programs on the machine do not lengthen as they do the clock's.
    const std::clock_t start = std::clock();
    comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
      RankContext rank{.world = world, .local_ranks = ranks};
      const InitBench bench = bench_init(options, rank);
      CHECK(bench.parameters == 124'439'808);
      if (ranks == 2) CHECK(bench.peak_bytes < size_t{4} * 124'439'808);  // not the whole model
      if (world.rank() == 0) hashes[ranks - 1] = bench.hash;
    });
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    CHECK(seconds / 2 < kSecondsOfBillion * 0.124);  // two cores share it
  }
  CHECK(hashes[0] == hashes[1]);
}

}  // namespace fsdp::tools
