// A copy of the state is the state of its moment, whatever the session does after it.
#include "tools/checkpoint/staged_state.h"

#include <doctest/doctest.h>

#include "tests/support/checkpoint_run.h"
#include "tools/predict/meta_run.h"

namespace fsdp::tools {
namespace {

TEST_CASE("staged state: what is written later is what was copied") {
  for (const comm::Strategy strategy : {comm::Strategy::kFullShard, comm::Strategy::kNoShard}) {
    const test::TempFolder folder;
    PlacedOptions options = test::checkpoint_options();
    options.fsdp.strategy = strategy;
    options.loss_scale = {.initial = 1024, .rule = {.growth = 2, .interval = 2}};
    options.fsdp.param_dtype = DType::kF16;
    const Manifest expected = test::write_after(2, options, 2, folder / "expected");
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      Session session = place_session(world, options);
      test::initialise_for_checkpoint(session);
      StagingMemory memory(session);
      test::run_steps(session, 0, 1);
      memory.copy();  // the same memory again
      test::run_steps(session, 1, 2);
      const StateToWrite state = memory.copy();
      test::run_steps(session, 2, 3);
      Manifest facts;
      facts.progress.steps = 2;
      write_checkpoint(world, state, folder / "got", facts);
    });
    CHECK(read_manifest(folder / "got").hash == expected.hash);
    CHECK(read_manifest(folder / "got").updates == expected.updates);
    CHECK(read_manifest(folder / "got").loss_scale == expected.loss_scale);
    for (const BlockChecksums& file : expected.files) {
      CHECK(read_file(folder.path() / "got" / file.name) ==
            read_file(folder.path() / "expected" / file.name));
    }
  }
}

TEST_CASE("staged state: counted as workspace, by a run without bytes as well") {
  constexpr auto kWorkspace = static_cast<size_t>(MemoryCategory::kWorkspace);
  const PlacedOptions options = test::checkpoint_options();
  for (const int ranks : {1, 3}) {
    std::vector<size_t> counted(static_cast<size_t>(ranks));
    comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
      Session session = place_session(world, options);
      const size_t before = session.backend().ledger().usage().current[kWorkspace];
      const StagingMemory memory(session);
      const size_t bytes = session.backend().ledger().usage().current[kWorkspace] - before;
      counted[static_cast<size_t>(world.rank())] = bytes;
      CHECK(bytes == rounded_bytes(memory.bytes()));
      size_t values = 0;
      for (const StatePartOwned& part : owned_state(session)) values += part.values.bytes();
      CHECK(memory.bytes() >= values);
      CHECK(memory.bytes() <= values + 64 * owned_state(session).size());
    });
    for (int rank = 0; rank < ranks; ++rank) {
      MetaRun run(options, ranks, rank);
      const size_t before = run.session().backend().ledger().usage().current[kWorkspace];
      const StagingMemory memory(run.session());
      CHECK(run.session().backend().ledger().usage().current[kWorkspace] - before ==
            counted[static_cast<size_t>(rank)]);
    }
  }
}

}  // namespace
}  // namespace fsdp::tools
