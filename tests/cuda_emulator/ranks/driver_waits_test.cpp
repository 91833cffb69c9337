// Calls of the driver that wait for streams (emulator.h, DriverWaits) stop no rank for ever:
// neither where each has a GPU, nor where ranks that are threads of one process share one through
// the host. Everything else with such waits is a slow test: emulated/driver_waits_own and _all.
#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/support/comm_checks.h"
#include "tests/support/sharded_run.h"

namespace fsdp::test {
namespace {

emulator::Settings with_waits(emulator::DriverWaits waits) {
  emulator::Settings settings = emulator::settings();
  settings.driver_waits = waits;
  return settings;
}

// Of ever larger buffers: staging memory is taken anew while the other ranks are in the collective.
TEST_CASE("ranks that share a GPU through the host meet in collectives though the driver waits") {
  const emulator::Configured configured(with_waits(emulator::DriverWaits::kForAll));
  comm::run_local_ranks(3, [](comm::Communicator& world) {
    CommRank rank(std::make_unique<cuda::CudaBackend>());
    for (const int64_t size : {1, 33, 4099, 200003}) {
      check_collectives(world, rank, DType::kF32, size, Memory::kPlain);
    }
  });
}

TEST_CASE("ranks that share a GPU train though the driver waits for all of them") {
  RunSpec spec;
  spec.subject = causal_lm(small_llama());
  spec.steps = 2;
  spec.rows = 4;
  const RunResult cpu = train(spec);
  const emulator::Configured configured(with_waits(emulator::DriverWaits::kForAll));
  spec.backend = [](int) { return std::make_unique<cuda::CudaBackend>(); };
  CHECK(loss_difference(train(spec), cpu) < 1e-6);
}

// More blocks than one slab has, while host tasks give others back.
TEST_CASE("pinned memory is taken while host tasks give some back") {
  const emulator::Configured configured(with_waits(emulator::DriverWaits::kForAll));
  cuda::CudaBackend gpu;
  const Tensor zero = Tensor::zeros(gpu, {16384}, DType::kF32);
  for (int round = 0; round < 40; ++round) {
    std::vector<float> values(16384, 1);
    gpu.read_later(gpu.compute_stream(), values.data(), zero.data(), zero.bytes(), [] {});
    gpu.host_task(gpu.compute_stream(), "gate", 0, [] {});
    const auto next = gpu.staging_memory(size_t{512} << (round % 11));
    gpu.synchronize(gpu.compute_stream());
    CHECK(values.front() == 0);
  }
}

}  // namespace
}  // namespace fsdp::test
