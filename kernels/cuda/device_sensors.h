// What a GPU is doing while it works: for benchmarks, which say at what clocks and power they were
// measured. No CUDA header is needed to include this. Not here: what it can do (cuda_devices.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace fsdp::cuda {

struct DeviceSensors {
  std::string name;
  size_t cache_bytes = 0;  // L2
  // Now; none where the driver's management library (NVML) does not say.
  std::optional<double> clock_mhz;  // of the multiprocessors
  std::optional<double> memory_clock_mhz;
  std::optional<double> power_w;
};
// Error when there is no such device.
DeviceSensors read_sensors(int device);

}  // namespace fsdp::cuda
