// Collectives of GPU buffers over a transport that works on host memory: staged through pinned
// memory in the order of the streams. The same checks as for the CPU backend (tests/comm).
#include <cstring>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/support/comm_checks.h"

namespace fsdp::test {
namespace {

void on_gpus(const std::function<void(comm::Communicator&, CommRank&)>& check) {
  for (const int ranks : {1, 2, 3}) {
    comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
      CommRank rank(std::make_unique<cuda::CudaBackend>());
      check(world, rank);
    });
  }
}

TEST_CASE("collectives of GPU buffers, every dtype and op") {
  on_gpus([](comm::Communicator& world, CommRank& rank) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      check_collectives(world, rank, dtype, 33, Memory::kPlain);
      check_collectives(world, rank, dtype, 4099, Memory::kFromCommunicator);  // grows the staging
      check_collectives(world, rank, dtype, 1, Memory::kPlain);
    }
  });
}

TEST_CASE("collectives of GPU buffers when copies and kernels are slow") {
  emulator::Settings settings;
  settings.delay = [](const std::string& stream, std::string_view task) {
    return static_cast<int>((stream.size() * 7 + task.size() * 13) % 5) * 200;
  };
  const emulator::Configured configured(settings);
  on_gpus([](comm::Communicator& world, CommRank& rank) {
    check_collectives(world, rank, DType::kF32, 65, Memory::kPlain);
  });
}

TEST_CASE("staging memory goes back when the last copy out of it is done") {
  emulator::Settings settings;
  settings.delay = [](const std::string&, std::string_view task) {
    return task == "copy" ? 5000 : 0;
  };
  const emulator::Configured configured(settings);
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    CommRank rank(std::make_unique<cuda::CudaBackend>());
    const Tensor buffer = finished_zeros(rank, 64);
    const EventPtr done =
        world.duplicate("short")->all_reduce(*rank.first, buffer, comm::ReduceOp::kSum);
    const auto next = rank.backend->staging_memory(buffer.bytes());  // the same
    do {
      std::memset(next.get(), 0xff, buffer.bytes());
    } while (!done->ready());
    rank.backend->synchronize(*rank.first);
    CHECK(buffer.to_doubles() == std::vector<double>(64, 0.0));
  });
}

}  // namespace
}  // namespace fsdp::test
