// Who is waited for in real steps: a delay in one rank's backward is attributed to that rank and
// phase, and nobody is named without one. The rule: tests/comm/straggler_test.cpp.
#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "comm/straggler.h"
#include "tests/support/places.h"
#include "tools/engine/session.h"

namespace fsdp {
namespace {

constexpr int64_t kLength = 8;
constexpr int kSteps = 16;

SessionOptions tiny_options() {
  SessionOptions options;
  options.model = models::family_defaults("llama");
  options.model.vocabulary = 11;
  options.model.hidden = 8;
  options.model.layers = 2;
  options.model.heads = options.model.kv_heads = 2;
  options.model.head_dim = 4;
  options.model.ffn = 16;
  options.model.max_positions = options.max_length = kLength;
  return options;
}

Batch batch_of(int ranks) {
  LabelledRows own = {.length = kLength, .samples = {0}};
  for (int64_t t = 0; t < kLength; ++t) own.tokens.push_back(static_cast<int32_t>(t));
  own.labels = own.tokens;
  return make_batch(std::move(own), {}, ranks * (kLength - 1));
}

// Steps of `ranks` ranks; the work of rank `late` takes 50 ms longer in this phase.
std::vector<comm::Straggler> stragglers(int ranks, int late, const std::string& slow_phase) {
  std::vector<comm::RankRings> all(static_cast<size_t>(ranks));
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    Session session(world, test::on_cpu(), tiny_options());
    session.initialise(models::from_scratch(3));
    TracePhases phases(nullptr, [&](const std::vector<std::string>& open) {
      const comm::HostPhase phase = comm::HostPhase::of(open);
      const bool begins = phase.innermost != world.rings()->phase().innermost;
      world.rings()->set_phase(phase);
      if (!begins || world.rank() != late || phase.innermost != slow_phase) return;
      Backend& backend = session.backend();
      backend.host_task(backend.compute_stream(), "delay", 0,
                        [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
    });
    session.set_phases(&phases);
    const Batch batch = batch_of(ranks);
    for (uint32_t step = 0; step < kSteps; ++step) {
      const PhaseScope phase(&phases, "step " + std::to_string(step + 1));
      session.train_step(batch, 0.01, step).read();
    }
    world.barrier();
    all[static_cast<size_t>(world.rank())] = {
        .rank = world.rank(), .place = "here", .rings = world.rings()->snapshot()};
  });
  return comm::find_stragglers(all);
}

TEST_CASE("waiting: a delay of 50 ms in one rank's backward is attributed to both") {
  for (const int ranks : {2, 3}) {
    const auto found = stragglers(ranks, 1, "backward");
    CAPTURE(ranks);
    REQUIRE(found.size() == 1);
    CAPTURE(comm::describe(found[0]));
    CHECK(found[0].rank == 1);
    CHECK(found[0].phase == "backward");
    CHECK(found[0].late_s > 0.035);
    CHECK(found[0].late_s < 0.09);
  }
}

// The others wait where they need the rank: the forward's gathers of so small a model are all under
// way before the delay.
TEST_CASE("waiting: a delay in the forward names the rank") {
  const auto found = stragglers(2, 1, "forward");
  REQUIRE(found.size() == 1);
  CHECK(found[0].rank == 1);
}

TEST_CASE("waiting: nobody is named in a healthy run") {
  for (const int ranks : {2, 3, 4}) {
    const auto found = stragglers(ranks, -1, "");
    CAPTURE(ranks);
    for (const comm::Straggler& each : found) CAPTURE(comm::describe(each));
    CHECK(found.empty());
  }
}

}  // namespace
}  // namespace fsdp
