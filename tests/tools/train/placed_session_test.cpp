// The backends that were chosen become the places of a session.
#include "tools/train/placed_session.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "kernels/cpu/file_backend.h"
#include "models/weights.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"

namespace fsdp::tools {
namespace {

TEST_CASE(
    "a session in the places of its options: the CPU, its host's memory, a file of the folder") {
  const test::TempFolder folder;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    PlacedOptions options;
    options.model = test::tiny_gpt2();
    options.max_length = 4;
    options.fsdp.offload = comm::Offload::kNvme;
    options.backend.offload_folder = folder.path().string();
    Session session = place_session(world, options);
    session.initialise(models::from_scratch(1));
    CHECK(session.host() != nullptr);
    REQUIRE(session.file() != nullptr);
    CHECK(dynamic_cast<cpu::FileBackend*>(session.file()) != nullptr);
    options.backend.offload_folder = (folder.path() / "none").string();
    CHECK(test::contains(test::error_of([&] { place_session(world, options); }), "none"));
  });
}

TEST_CASE("nothing computes where the options say so, in all places") {
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    PlacedOptions options;
    options.model = test::tiny_gpt2();
    options.max_length = 4;
    options.fsdp.offload = comm::Offload::kAll;
    options.backend.meta = meta::MetaOptions{};
    Session session = place_session(world, options);
    CHECK(dynamic_cast<meta::MetaBackend*>(&session.backend()) != nullptr);
    CHECK(dynamic_cast<meta::MetaBackend*>(session.host()) != nullptr);
  });
}

TEST_CASE("f64 is the CPU's alone: an error where a GPU was asked for") {
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    PlacedOptions options;
    options.fsdp.param_dtype = DType::kF64;
    options.backend.only_cuda = true;
    CHECK(test::contains(test::error_of([&] { make_places(world, options); }),
                         "only the CPU computes f64"));
  });
}

}  // namespace
}  // namespace fsdp::tools
