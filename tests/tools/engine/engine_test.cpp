// What an engine makes of its places, and when. That its steps are right: tests/comm/fsdp, whose
// runs are engines.
#include "tools/engine/engine.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "kernels/cpu/file_backend.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"
#include "tools/engine/session.h"

namespace fsdp {
namespace {

struct Made {
  int hosts = 0, files = 0;
  bool has_host = false, has_file = false;
  bool operator==(const Made&) const = default;
};

// An engine of a small model that counts what it makes; `asks`: also for memory that the host
// reaches.
Made made_for(const EngineOptions& given, bool asks = false) {
  const test::TempFolder folder;
  Made made;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    Places places;
    places.device = std::make_unique<cpu::CpuBackend>();
    places.host = [&](Backend&) {
      ++made.hosts;
      return std::make_unique<cpu::CpuBackend>();
    };
    places.file = [&](Backend&) {
      ++made.files;
      return std::make_unique<cpu::FileBackend>(folder.path(), "test", cpu::CpuOptions{});
    };
    test::Subject subject = test::causal_lm(test::small_gpt2())(*places.device, DType::kF32);
    EngineOptions options = given;
    options.wrap = comm::wrap_classes({subject.block_class});
    Engine engine(world, std::move(places), std::move(subject.module), options);
    if (asks) CHECK(&engine.host_memory() == &engine.backend());  // a CPU's memory is its host's
    made.has_host = engine.host() != nullptr;
    made.has_file = engine.file() != nullptr;
  });
  return made;
}

TEST_CASE("an engine asks for the host's memory and for a file where something lies there") {
  using comm::Offload;
  const Made nothing, host = {.hosts = 1, .has_host = true};
  CHECK(made_for({}, true) == nothing);
  CHECK(made_for({.fsdp = {.offload = Offload::kOptimizer}}) == host);
  CHECK(made_for({.fsdp = {.offload = Offload::kAll}}) == host);
  CHECK(made_for({.fsdp = {.offload = Offload::kNvme}}) ==
        Made{.hosts = 1, .files = 1, .has_host = true, .has_file = true});
  CHECK(made_for({.inputs_on_host = true}) == host);
  // Without training there is no optimizer; parameters may lie on the host.
  CHECK(made_for({.fsdp = {.offload = Offload::kOptimizer}, .step = {.training = false}}) ==
        nothing);
  CHECK(made_for({.fsdp = {.offload = Offload::kAll}, .step = {.training = false}}) == host);
}

TEST_CASE("places without what makes the host's memory or a file: an error where it is needed") {
  const auto refusal = [](comm::Offload offload) {
    return test::error_of([&] {
      comm::run_local_ranks(1, [&](comm::Communicator& world) {
        Places places;
        places.device = std::make_unique<cpu::CpuBackend>();
        if (offload == comm::Offload::kNvme) {
          places.host = [](Backend&) { return std::make_unique<cpu::CpuBackend>(); };
        }
        test::Subject subject = test::causal_lm(test::small_gpt2())(*places.device, DType::kF32);
        const EngineOptions options = {.wrap = comm::wrap_nothing(), .fsdp = {.offload = offload}};
        Engine engine(world, std::move(places), std::move(subject.module), options);
      });
    });
  };
  CHECK(
      test::contains(refusal(comm::Offload::kAll), "[engine] places.host: expected what makes it"));
  CHECK(test::contains(refusal(comm::Offload::kNvme), "[engine] places.file: expected"));
  CHECK(refusal(comm::Offload::kNone) == "");
}

// The tables of a rotary model are memory of the device: an error leaves it to them until the end.
TEST_CASE("a session whose places fail: the error, and nothing is used after it is gone") {
  for (const auto& model : {test::small_llama(), test::tiny_bloom()}) {
    const auto refusal = [&](Places::Make host, Places::Make file) {
      return test::error_of([&] {
        comm::run_local_ranks(1, [&](comm::Communicator& world) {
          Places places;
          places.device = std::make_unique<cpu::CpuBackend>();
          places.host = host;
          places.file = file;
          SessionOptions options = {.model = model, .max_length = 8};
          options.fsdp.offload = comm::Offload::kNvme;
          Session session(world, std::move(places), options);
        });
      });
    };
    const auto host = [](Backend&) { return std::make_unique<cpu::CpuBackend>(); };
    const auto fails = [](Backend&) -> std::unique_ptr<Backend> { fail("no room"); };
    CHECK(test::contains(refusal(nullptr, nullptr), "[engine] places.host: expected"));
    CHECK(test::contains(refusal(fails, nullptr), "no room"));
    CHECK(test::contains(refusal(host, fails), "no room"));
  }
  CHECK(test::contains(test::error_of([] {
                         comm::run_local_ranks(1, [](comm::Communicator& world) {
                           Session session(world, Places{}, {.model = test::small_llama()});
                         });
                       }),
                       "[engine] places.device: expected a backend, got none"));
}

TEST_CASE("an engine without a wrap policy is an error") {
  CHECK(test::contains(test::error_of([] {
                         comm::run_local_ranks(1, [](comm::Communicator& world) {
                           Places places;
                           places.device = std::make_unique<cpu::CpuBackend>();
                           test::Subject subject =
                               test::causal_lm(test::small_gpt2())(*places.device, DType::kF32);
                           Engine engine(world, std::move(places), std::move(subject.module), {});
                         });
                       }),
                       "[engine] wrap: expected a policy"));
}

}  // namespace
}  // namespace fsdp
