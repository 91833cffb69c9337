// What is known of a GPU while it works, and of one that there is not.
#include "kernels/cuda/device_sensors.h"

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

}  // namespace
}  // namespace fsdp::test
