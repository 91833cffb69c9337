// fsdp.offload: nvme on a disk that fails or is full in mid-run: the run ends with an error that
// names the place, and goes on from its last checkpoint to the bit. The calls fail one after the
// other, as in io_faults_test.cpp; io_uring, which makes none of these calls, is refused by a
// filter. Requirements: S2.16.
#include <doctest/doctest.h>

#include "core/io/state_file.h"
#include "tests/support/checkpoint_run.h"
#include "tests/support/io_faults.h"
#include "tests/support/without_io_uring.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::IoFault;
using test::IoFaultPlan;
using test::IoFaults;

constexpr int64_t kCut = 1, kSteps = 4;

PlacedOptions on_disk(const fs::path& folder) {
  PlacedOptions options = test::checkpoint_options();
  options.fsdp.offload = comm::Offload::kNvme;
  options.backend.offload_folder = folder.string();
  return options;
}

// A run with a checkpoint after its first step. `hash`: after the last one.
void train(const fs::path& disk, const fs::path& checkpoint, StateHash* hash = nullptr) {
  test::without_io_uring([&] {
    comm::run_local_ranks(1, [&](comm::Communicator& world) {
      Session session = place_session(world, on_disk(disk));
      test::initialise_for_checkpoint(session);
      test::run_steps(session, 0, kCut);
      Manifest facts;
      facts.progress.steps = kCut;
      write_checkpoint(session, checkpoint, facts);
      const test::RunState state = test::run_steps(session, kCut, kSteps);
      if (hash) *hash = state.hash;
    });
  });
}

}  // namespace

TEST_CASE("nvme: a read or a write that fails ends the run, and its checkpoint is whole") {
  const test::TempFolder folder;
  const fs::path disk = folder / "disk";
  fs::create_directories(disk);
  const StateHash expected = test::undisturbed(1, test::checkpoint_options(), kSteps).hash;
  StateHash hash;
  std::map<std::string, int64_t> calls;
  {
    const IoFaults none(disk, {});
    train(disk, folder / "step-1", &hash);
    calls = none.calls();
  }
  CHECK(hash == expected);
  for (const auto& [call, says] :
       {std::pair{"pwrite", "No space left on device"}, std::pair{"pread", "Input/output error"}}) {
    const int64_t count = calls[call] / 2;  // each could have been short, too
    REQUIRE(count > 40);
    for (const int64_t percent : {10, 75, 90, 95}) {
      CAPTURE(call);
      CAPTURE(percent);
      const fs::path checkpoint = folder / fmt::format("{}-{}", call, percent);
      std::string error;
      {
        const IoFaults faults(disk, {.fault = IoFault::kError,
                                     .at = count * percent / 100,
                                     .from_then_on = percent % 2 == 0,
                                     .only = call});
        error = test::error_of([&] { train(disk, checkpoint); });
        CHECK(faults.failed() > 0);
      }
      CAPTURE(error);
      CHECK(contains(error, disk.string() + ": the state of rank 0"));
      CHECK(
          contains(error, call == std::string("pread") ? "expected to read" : "expected to write"));
      CHECK(contains(error, says));
      CHECK(fs::is_empty(disk));
      if (!fs::exists(checkpoint)) continue;
      CHECK(Checkpoint(checkpoint).verify_all().empty());
      CHECK(test::go_on(1, on_disk(disk), checkpoint, kSteps).hash == expected);
    }
  }
  CHECK(fs::exists(folder / "pwrite-95"));
  CHECK(fs::exists(folder / "pread-95"));
}

TEST_CASE("nvme: what the file has, as formulas") {
  const test::TempFolder folder;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const comm::Strategy strategy : {comm::Strategy::kFullShard, comm::Strategy::kNoShard}) {
      PlacedOptions options = on_disk(folder.path());
      options.fsdp.strategy = strategy;
      options.fsdp.param_dtype = dtype;
      comm::run_local_ranks(2, [&](comm::Communicator& world) {
        Session session = place_session(world, options);
        // Of all units: master, gradient and two moments in whole pages; a bf16 copy.
        size_t wide = 0, narrow = 0;
        for (const auto& unit : session.sharded().units()) {
          const auto n = static_cast<size_t>(unit->parameters.trainable()->layout.shard_numel());
          wide += rounded_to_blocks(4 * n);
          narrow += dtype == DType::kF32 ? 0 : rounded_to_blocks(2 * n);
        }
        const MemoryUsage usage = session.file()->ledger().usage();
        const auto held = [&](MemoryCategory category) {
          return usage.current[static_cast<size_t>(category)];
        };
        CHECK(held(MemoryCategory::kParameterShard) == wide + narrow);
        CHECK(held(MemoryCategory::kGradient) == wide);
        CHECK(held(MemoryCategory::kOptimizerState) == 2 * wide);
        CHECK(usage.held_peak == usage.total_current);
      });
    }
  }
}

}  // namespace fsdp::tools
