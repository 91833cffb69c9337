// Sessions on GPUs that talk over NCCL: what is registered with it, and that a step is issued
// without waiting for the GPU.
#include <atomic>
#include <thread>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/support/sharded_run.h"
#include "tools/train/placed_session.h"

namespace fsdp::test {
namespace {

tools::PlacedOptions options_with(const comm::FsdpOptions& fsdp) {
  tools::PlacedOptions options;
  options.model = small_llama();
  options.max_length = 6;
  options.fsdp = fsdp;
  options.backend = {.cuda = cuda::CudaOptions{}, .nccl = comm::NcclOptions{}};
  return options;
}

Batch batch_of(int rank) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, rank};
  return make_batch({.length = 6, .tokens = tokens, .labels = tokens}, {}, 10);
}

struct Outcome {
  std::vector<double> losses;
  int64_t registered = 0, registered_in_steps = 0;
  int64_t exchanges_in_steps = 0;  // for which a host waits
};

Outcome train_with(const comm::FsdpOptions& fsdp) {
  Outcome out;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    const int64_t before = emulator::nccl_registrations();
    world.barrier();
    Session session = place_session(world, options_with(fsdp));
    session.initialise(models::from_scratch(3));
    world.barrier();
    const int64_t made = emulator::nccl_registrations();
    world.barrier();
    const auto exchanges = [&] { return world.rings()->totals()["exchange"].calls; };
    int64_t exchanged = 0;
    std::vector<double> losses;
    for (uint32_t step = 0; step < 3; ++step) {
      const int64_t earlier = exchanges();
      losses.push_back(session.train_step(batch_of(world.rank()), 1e-2, step).read().loss);
      if (step > 0) exchanged += exchanges() - earlier;  // the first makes what stays
    }
    world.barrier();
    if (world.rank() != 0) return;
    out = {losses, made - before, emulator::nccl_registrations() - made, exchanged};
  });
  return out;
}

TEST_CASE("memory that stays is registered with NCCL, what comes and goes in a step is not") {
  const Outcome kept = train_with({}), released = train_with({.release_arena = true});
  CHECK(kept.registered > 0);
  CHECK(kept.registered_in_steps == 0);
  CHECK(released.registered == 0);
  CHECK(released.registered_in_steps == 0);
  CHECK(kept.exchanges_in_steps == 0);
  CHECK(released.exchanges_in_steps == 0);
  CHECK(released.losses == kept.losses);
}

// The CPU's optimizer rounds as the GPU's does: core/optimizer_rules/rule.h.
TEST_CASE("offload beside GPUs: the host updates, and losses are to the bit as without it") {
  const Outcome expected = train_with({});
  for (const comm::Offload offload : {comm::Offload::kOptimizer, comm::Offload::kAll}) {
    for (const bool release_arena : {false, true}) {
      CAPTURE(choice_name(offload));
      const Outcome got = train_with({.release_arena = release_arena, .offload = offload});
      CHECK(got.registered_in_steps == 0);
      CHECK(got.exchanges_in_steps == 0);
      CHECK(got.losses == expected.losses);
    }
  }
}

// The GPU stands still while `closed`; not for ever, so that a host that waits is a failure.
TEST_CASE("a step over NCCL is issued while the GPU stands still, also where its arena goes") {
  for (const comm::FsdpOptions& fsdp :
       {comm::FsdpOptions{}, comm::FsdpOptions{.release_arena = true},
        comm::FsdpOptions{.offload = comm::Offload::kAll}}) {
    CAPTURE(choice_name(fsdp.offload));
    CAPTURE(fsdp.release_arena);
    std::atomic<bool> closed{false};
    std::atomic<int> issued_in_time{0};
    emulator::Settings settings = emulator::settings();
    settings.delay = [&](const std::string&, std::string_view) {
      for (int i = 0; i < 10'000 && closed; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      closed = false;
      return 0;
    };
    const emulator::Configured configured(settings);
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      Session session = place_session(world, options_with(fsdp));
      session.initialise(models::from_scratch(3));
      session.train_step(batch_of(world.rank()), 1e-2, 0).read();
      world.barrier();
      closed = true;
      world.barrier();
      const StepHandle step = session.train_step(batch_of(world.rank()), 1e-2, 1);
      issued_in_time += closed;
      world.barrier();
      closed = false;
      step.read();
    });
    CHECK(issued_in_time == 2);
  }
}

}  // namespace
}  // namespace fsdp::test
