// Set-up and draw, each between barriers.
#include "tools/bench/bench_init.h"

#include <algorithm>
#include <chrono>

#include "comm/exchange.h"
#include "models/weights.h"
#include "tools/checkpoint/owned_state.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {
namespace {

constexpr int64_t kLength = 1;  // of a sequence that nobody runs

// Seconds of the slowest rank.
template <typename Work>
double timed(comm::Communicator& world, const Work& work) {
  world.barrier();
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  const std::vector<double> all = comm::exchange_values(world, passed.count());
  return *std::max_element(all.begin(), all.end());
}

}  // namespace

InitBench bench_init(const InitBenchOptions& options, RankContext& rank) {
  PlacedOptions session_options;
  session_options.model = options.model;
  session_options.max_length = kLength;
  session_options.fsdp.strategy = options.strategy;
  session_options.fsdp.param_dtype = options.dtype;
  session_options.fsdp.reduce_dtype = accumulation_dtype(options.dtype);
  session_options.backend = rank.backend;
  session_options.training = false;
  InitBench result = {.parameters = options.model.parameter_count()};
  std::unique_ptr<Session> session;
  result.set_up_s = timed(rank.world, [&] {
    session = std::make_unique<Session>(rank.world, make_places(rank.world, session_options),
                                        session_options);
  });
  with_session(rank, [&] {
    result.values_s = timed(rank.world, [&] {
      session->initialise(models::from_scratch(options.seed, options.model.padding_row));
      session->backend().synchronize(session->backend().compute_stream());
    });
    result.peak_bytes = session->peak_memory();
    result.hash = hash_weights(*session);
    rank.world.barrier();
  });
  return result;
}

}  // namespace fsdp::tools
