// The limit of each rank is the least of all, and the same on all.
#include "tools/predict/rank_limits.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"

namespace fsdp::tools {
namespace {

TEST_CASE("rank limits: ranks of one process share the host's memory") {
  std::vector<MemoryLimit> alone(1), shared(3), given(3);
  const auto limits = [](std::vector<MemoryLimit>& out, const std::string& wanted) {
    const auto ranks = static_cast<int>(out.size());
    comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
      const RankContext rank = {
          .world = world, .backend = {}, .backend_note = "", .local_ranks = ranks};
      out[static_cast<size_t>(world.rank())] = limit_of_device(rank, wanted);
    });
  };
  limits(alone, "auto");
  limits(shared, "auto");
  limits(given, "1MiB");
  CHECK(shared[0].bytes > 0);
  CHECK(shared[0].bytes < alone[0].bytes);
  for (const size_t rank : {1, 2}) {
    CHECK(shared[rank].bytes == shared[0].bytes);
    CHECK(shared[rank].source == shared[0].source);
    CHECK(given[rank].bytes == 1 << 20);
  }
}

}  // namespace
}  // namespace fsdp::tools
