// What is known of a GPU while it works, and of one that there is not.
// Requirements: S1.19, S3.11.
#include "kernels/cuda/device_sensors.h"

#include <thread>

#include "core/error.h"
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

TEST_CASE("sensors: a name, and readings that can be") {
  on_gpu([](cuda::CudaBackend& gpu) {
    const cuda::DeviceSensors sensors = cuda::read_sensors(0);
    CHECK(sensors.name == gpu.device().name);
    for (const auto& [reading, most] :
         {std::pair(sensors.clock_mhz, 10'000.0), std::pair(sensors.memory_clock_mhz, 50'000.0),
          std::pair(sensors.power_w, 5'000.0)}) {
      CHECK(reading.value_or(1) > 0);
      CHECK(reading.value_or(1) < most);
    }
  });
}

TEST_CASE("sensors: a GPU that is asked often, while it works and from another thread") {
  on_gpu([](cuda::CudaBackend& gpu) {
    const cuda::DeviceMonitor monitor(0);
    CHECK(monitor.name() == gpu.device().name);
    constexpr size_t kBytes = size_t{4} << 20;
    Stream& stream = gpu.compute_stream();
    void* const block = gpu.allocate(stream, kBytes, MemoryCategory::kWorkspace);
    cuda::DeviceLoad load;
    std::thread([&] { load = monitor.read(); }).join();
    gpu.release(stream, block, kBytes, MemoryCategory::kWorkspace);
    CHECK(load.memory_pool.value() >= kBytes);
    CHECK(load.utilisation.value_or(0) >= 0);
    CHECK(load.utilisation.value_or(0) <= 100);
    CHECK(load.memory_used.value_or(1) <= load.memory_total.value_or(1));
    CHECK(load.pcie_received.value_or(0) >= 0);
  });
}

}  // namespace
}  // namespace fsdp::test
