// Waits of the CUDA backend that only a slow stream, or one in an error, shows.
#include <atomic>
#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/intrinsics.h"
#include "kernels/cuda/launch.h"
#include "tests/cuda_emulator/emulator.h"

namespace fsdp::cuda {
namespace {

TEST_CASE("a stream that goes waits for what it was given") {
  emulator::Settings settings;
  settings.delay = [](const std::string&, std::string_view task) {
    return task == "copy" ? 20000 : 0;
  };
  const emulator::Configured configured(settings);
  CudaBackend gpu;
  const Tensor zero = Tensor::zeros(gpu, {}, DType::kF32);
  gpu.synchronize(gpu.compute_stream());
  const std::shared_ptr<std::byte> pinned = gpu.staging_memory(sizeof(float));
  auto* const value = reinterpret_cast<float*>(pinned.get());
  *value = 1;
  gpu.copy(*gpu.create_stream("side"), value, zero.data(), zero.bytes());
  CHECK(*value == 0);
}

__global__ void give_up(float*) { fail("this kernel gives up"); }

// The GPU waits for nothing more, but the host still opens the gate: in the stream's memory.
TEST_CASE("a stream in an error goes when the host is done with it") {
  emulator::Settings settings = emulator::settings();
  // The kernel starts before the host is done.
  settings.driver_waits = emulator::DriverWaits::kNever;
  const emulator::Configured configured(settings);
  cpu::CpuBackend cpu;
  CudaBackend gpu;
  auto side = gpu.create_stream("side");
  std::atomic<bool> ran = false;
  // The error comes when the wait is in the stream, and before the host opens the gate.
  gpu.host_task(*side, "delay", 0,
                [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  {
    const Op op(gpu, *side, "probe");
    launch(give_up, 1, 1, 0, op, nullptr);
  }
  cpu.host_task(cpu.compute_stream(), "slow", 0, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ran = true;
  });
  gpu.wait(*side, cpu.record(cpu.compute_stream()));
  side = nullptr;
  CHECK(ran);
}

}  // namespace
}  // namespace fsdp::cuda
