// What every number of ranks and strategy wrote, every other reads; and the memory of a load.
#include <fstream>

#include <doctest/doctest.h>
#include <sys/prctl.h>

#include "tests/support/checkpoint_run.h"
#include "tools/checkpoint/read_checkpoint.h"
#include "tools/predict/memory_report.h"

namespace fsdp::tools {
namespace {

TEST_CASE("checkpoint: 1, 2, 3, 4, 6 and 8 ranks under every strategy read each other's") {
  int reads = 0;
  for (const test::CheckpointLayout& writer : test::layouts()) {
    CAPTURE(writer.ranks);
    CAPTURE(choice_name(writer.options.fsdp.strategy));
    const test::TempFolder folder;
    const Manifest written = test::write_after(writer.ranks, writer.options, 2, folder / "step-2");
    CHECK(written.hash.weights != 0);
    for (const test::CheckpointLayout& reader : test::layouts()) {
      CAPTURE(reader.ranks);
      CAPTURE(choice_name(reader.options.fsdp.strategy));
      const test::RunState read = test::go_on(reader.ranks, reader.options, folder / "step-2", 2);
      CHECK(read.hash == written.hash);
      ++reads;
    }
  }
  MESSAGE(reads, " loads");
  CHECK(reads >= 36 * 16);
}

// The most that this process has held from here on. All ranks are its threads, so that it holds
// what the PSS of processes would add up to.
void forget_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

// Memory that nobody touches is not counted in whole huge pages with its neighbours'.
struct SmallPages {
  SmallPages() { REQUIRE(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0); }
  ~SmallPages() { prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); }
};

TEST_CASE("checkpoint: a load holds the state and a buffer a rank, from 8 ranks to 1 and back") {
  for (const auto& [from, to] : {std::pair{8, 1}, {1, 8}}) {
    CAPTURE(from);
    const SmallPages pages;
    const test::TempFolder folder;
    const Manifest written = test::write_after(from, test::gpt2_124m(), 1, folder / "step-1");
    const auto state = static_cast<double>(written.state_bytes());
    REQUIRE(state >= 1 << 30);
    forget_peak();
    const size_t before = process_memory().resident;
    StateHash read;
    comm::run_local_ranks(to, [&](comm::Communicator& world) {
      Session session = place_session(world, test::gpt2_124m());
      Checkpoint checkpoint(folder / "step-1");
      restore(session, checkpoint);
      const StateHash hash = hash_state(session);
      if (world.rank() == 0) read = hash;
    });
    CHECK(read == written.hash);
    const auto growth = static_cast<double>(process_memory().peak_resident - before);
    constexpr double kBuffer = 8 << 20;
    MESSAGE(from, " -> ", to, ": ", growth / (1 << 20), " MiB for a state of ", state / (1 << 20));
    CHECK(growth <= 1.1 * state + to * kBuffer);
  }
}

}  // namespace
}  // namespace fsdp::tools
