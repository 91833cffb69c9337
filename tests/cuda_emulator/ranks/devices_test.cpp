// Which GPU is whose when every rank sees GPUs of its own choice, as under a launcher that sets
// CUDA_VISIBLE_DEVICES for each task.
#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/machine_error.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/support/comm_checks.h"
#include "tests/support/environment.h"
#include "tests/support/temp_folder.h"
#include "tools/launch/backend_choice.h"

namespace fsdp::test {
namespace {

using tools::GpuChoice;
using tools::RankGpus;

TEST_CASE("ranks that see one GPU each, all different, talk over NCCL") {
  comm::run_local_ranks(2, [](comm::Communicator& world) {
    emulator::see_devices({4 + world.rank()});
    const std::vector<RankGpus> ranks = tools::gpus_of_ranks(world, 0, "auto");
    REQUIRE(ranks.size() == 2);
    CHECK(ranks[0].gpus != ranks[1].gpus);
    const GpuChoice gpu = tools::choose_gpu(ranks, world.rank(), "auto", false);
    CHECK(gpu.cuda->device == 0);
    REQUIRE(tools::choose_transport(world, "auto", gpu).nccl);
    CommRank rank(tools::make_backend({.cuda = gpu.cuda}, DType::kF32));
    const auto over_nccl = comm::make_nccl_world(world, {});
    check_collectives(*over_nccl, rank, DType::kF32, 33, Memory::kPlain);
  });
}

TEST_CASE("ranks that see the same GPU share it, with leave, through the host") {
  comm::run_local_ranks(2, [](comm::Communicator& world) {
    emulator::see_devices({4});
    const std::vector<RankGpus> ranks = tools::gpus_of_ranks(world, 0, "auto");
    CHECK_THROWS_WITH_AS(
        tools::choose_gpu(ranks, world.rank(), "auto", false),
        (ranks[0].host + " has 2 ranks and 1 GPU; --share-gpus lets ranks share one").c_str(),
        Error);
    const GpuChoice gpu = tools::choose_gpu(ranks, world.rank(), "auto", true);
    CHECK(gpu.shared);
    CHECK(!tools::choose_transport(world, "auto", gpu).nccl);
  });
}

TEST_CASE("ranks that see several GPUs take one each") {
  comm::run_local_ranks(2, [](comm::Communicator& world) {
    emulator::see_devices({2, 5});
    const std::vector<RankGpus> ranks = tools::gpus_of_ranks(world, 0, "auto");
    CHECK(tools::choose_gpu(ranks, world.rank(), "auto", false).cuda->device == world.rank());
  });
}

TEST_CASE("a GPU that only some other program could use is an error of auto, on every rank") {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "dev");
  folder.write("dev/nvidia0", "");
  emulator::Settings settings = emulator::settings();
  settings.driver = 11080;
  const emulator::Configured configured(settings);
  const Environment visible("CUDA_VISIBLE_DEVICES", nullptr);
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    const auto ranks = tools::gpus_of_ranks(world, 0, "auto", folder.path());
    CHECK(ranks[1].unusable);
    CHECK_THROWS_WITH_AS(tools::choose_gpu(ranks, world.rank(), "auto", false),
                         ("runtime.backend: auto, but " + ranks[0].host +
                          " has a GPU that this program cannot use: " + ranks[0].reason +
                          "; --backend cpu computes without it")
                             .c_str(),
                         Error);
  });
}

TEST_CASE("GPUs that do not answer are an error of the machine, where a GPU would be used") {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "dev");
  emulator::Settings settings = emulator::settings();
  settings.count_error = 802;  // cudaErrorSystemNotReady
  const emulator::Configured configured(settings);
  const Environment visible("CUDA_VISIBLE_DEVICES", nullptr);
  const auto chosen = [&](const char* backend) {
    std::string by_last;
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      const auto ranks = tools::gpus_of_ranks(world, 0, backend, folder.path());
      std::string mine = "the CPU";
      try {
        if (tools::choose_gpu(ranks, world.rank(), backend, false).cuda) mine = "a GPU";
      } catch (const MachineError& error) {
        mine = error.what();
      }
      if (world.rank() == 1) by_last = mine;
    });
    return by_last;
  };
  CHECK(chosen("auto") == "the CPU");  // nothing says that there is a GPU
  CHECK(chosen("cpu") == "the CPU");
  folder.write("dev/nvidia0", "");
  CHECK(chosen("cpu") == "the CPU");
  for (const std::string backend : {"auto", "cuda"}) {
    CHECK(
        chosen(backend.c_str()).starts_with("runtime.backend: " + backend + ", but the GPUs of "));
  }
}

}  // namespace
}  // namespace fsdp::test
