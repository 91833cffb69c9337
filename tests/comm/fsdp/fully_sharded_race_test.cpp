// Stream order of the sharded schedule: delays on any stream change nothing, and every kind of edge
// between the compute, gather and reduce streams is needed: without it, results change.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "comm/local_transport.h"
#include "tests/support/sharded_run.h"

namespace {

using namespace fsdp;
using comm::Strategy;

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

struct Edge {
  std::string waiting, recorded;
};

// The wait is gone, and the stream that should have been waited for is slow.
cpu::CpuOptions without(const Edge& edge) {
  cpu::CpuOptions options;
  options.ignore_wait = [=](const std::string& waiting, const std::string& recorded) {
    return waiting == edge.waiting && recorded == edge.recorded;
  };
  options.delay = [=](const std::string& stream, std::string_view) {
    return stream == edge.recorded ? 2000 : 0;
  };
  return options;
}

}  // namespace

namespace fsdp::test {
namespace {

// What every rank ends with; ranks may differ, unlike in train().
std::vector<RunResult> results_by_rank(const RunSpec& spec) {
  std::vector<RunResult> results(static_cast<size_t>(spec.ranks));
  comm::run_local_ranks(spec.ranks, [&](comm::Communicator& world) {
    RankRun run(world, spec);
    for (int step = 0; step < spec.steps; ++step) run.step(step);
    run.wait();
    results[static_cast<size_t>(world.rank())] = run.result();
  });
  return results;
}

}  // namespace

TEST_CASE("delays on every stream leave the bits as they are") {
  for (const Strategy strategy : {Strategy::kFullShard, Strategy::kNoShard, Strategy::kShardGradOp,
                                  Strategy::kHybridShard}) {
    CAPTURE(static_cast<int>(strategy));
    RunSpec spec;
    spec.fsdp.strategy = strategy;
    spec.ranks = strategy == Strategy::kHybridShard ? 4 : 2;
    spec.fsdp.shard_size = strategy == Strategy::kHybridShard ? 2 : 0;
    const RunResult undisturbed = train(spec);
    for (const uint64_t seed : {1, 2}) {
      spec.cpu = [=](int rank) { return random_delays(seed * 10 + static_cast<uint64_t>(rank), 400); };
      CHECK(train(spec) == undisturbed);
    }
  }
}

// A data race on purpose: ThreadSanitizer would report what the results show here.
TEST_CASE("a step that lacks an edge is noticed" * doctest::skip(kThreadSanitizer)) {
  const RunSpec spec;
  const std::vector<RunResult> right = results_by_rank(spec);
  for (const Edge& edge : {
           Edge{"compute", "gather"},  // kernels read parameters that have not arrived
           Edge{"gather", "compute"},  // a gather overwrites parameters in use, or reads old masters
           Edge{"reduce", "compute"},  // a reduce reads gradients that are not written yet
           Edge{"compute", "reduce"},  // the optimizer reads gradients that are not reduced yet
       }) {
    CAPTURE(edge.waiting);
    CAPTURE(edge.recorded);
    RunSpec broken = spec;
    broken.cpu = [=](int) { return without(edge); };
    CHECK(results_by_rank(broken) != right);
  }
}

}  // namespace fsdp::test
