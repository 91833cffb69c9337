// What a checkpoint consists of, and that it is all there or not at all.
#include "tools/checkpoint/write_checkpoint.h"

#include <doctest/doctest.h>

#include "core/io/safetensors.h"
#include "tests/support/checkpoint_run.h"
#include "tools/launch/launch.h"

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

}  // namespace
}  // namespace fsdp::tools
