// What a checkpoint's folder holds, and a copy of the state that is written meanwhile.
#include "tools/checkpoint/write_checkpoint.h"

#include <doctest/doctest.h>

#include "core/io/safetensors.h"
#include "tests/support/checkpoint_run.h"
#include "tools/launch/launch.h"
#include "tools/predict/meta_run.h"

namespace fsdp::tools {
namespace {

TEST_CASE("checkpoint: files of every rank that any reader of safetensors can read") {
  const test::TempFolder folder;
  PlacedOptions options = test::checkpoint_options();
  options.frozen = {"transformer.wpe.weight"};
  const Manifest written = test::write_after(3, options, 2, folder / "step-2");
  REQUIRE(written.files.size() == 3);
  CHECK(written.updates == 2);
  CHECK(written.world_size == 3);
  CHECK(!written.loss_scale);
  CHECK(!written.tensors.contains("transformer.wpe.weight"));  // the base has it
  const StoredTensor& table = written.tensors.at("transformer.wte.weight");
  CHECK(table.shape == std::vector<int64_t>{23, 15});
  CHECK(table.pieces.size() == 2);
  std::vector<double> values;
  for (const StoredPiece& piece : table.pieces) {
    const SafetensorsFile file =
        SafetensorsFile::open(folder / "step-2" / written.files[piece.file].name);
    CHECK(file.entry("transformer.wte.weight/exp_avg").shape == std::vector<int64_t>{piece.count});
    std::vector<double> part(static_cast<size_t>(piece.count));
    file.read_elements("transformer.wte.weight", 0, piece.count, DType::kF64, part.data());
    values.insert(values.end(), part.begin(), part.end());
  }
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    Session session = place_session(world, options);
    test::initialise_for_checkpoint(session, true);
    Checkpoint checkpoint(folder / "step-2");
    restore(session, checkpoint);
    for (const StatePartOwned& part : owned_state(session)) {
      if (part.name == "transformer.wte.weight") CHECK(part.values.to_doubles() == values);
      if (part.name == "transformer.wte.weight/step") CHECK(part.values.item() == 2);
    }
  });
}

TEST_CASE("checkpoint: what cannot be written leaves nothing, and every rank is told") {
  const test::TempFolder folder;
  folder.write("file", "");
  std::vector<std::string> errors(3);
  comm::run_local_ranks(3, [&](comm::Communicator& world) {
    Session session = place_session(world, test::checkpoint_options());
    test::initialise_for_checkpoint(session);
    const auto rank = static_cast<size_t>(world.rank());
    try {
      write_checkpoint(session, folder / "file/step-0", {});
    } catch (const AgreedError& error) {
      errors[rank] = error.what();
    }
  });
  for (const std::string& error : errors)
    CHECK(test::contains(error, "file/step-0: cannot be made"));
}

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
