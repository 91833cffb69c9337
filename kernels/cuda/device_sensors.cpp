// The runtime knows the device, NVML what it is doing; they call it by the same PCI address.
#include "kernels/cuda/device_sensors.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "kernels/cuda/check.h"
#include "kernels/cuda/nvml.h"

namespace fsdp::cuda {
namespace {

std::optional<double> reading(nvml::Return status, unsigned value, double unit) {
  if (status != nvml::kSuccess) return std::nullopt;
  return value * unit;
}

}  // namespace

DeviceSensors read_sensors(int device) {
  cudaDeviceProp properties = {};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  DeviceSensors sensors;
  sensors.name = properties.name;
  sensors.cache_bytes = static_cast<size_t>(properties.l2CacheSize);
  const nvml::Library* library = nvml::library();
  if (!library) return sensors;
  const std::string address = fmt::format("{:08x}:{:02x}:{:02x}.0", properties.pciDomainID,
                                          properties.pciBusID, properties.pciDeviceID);
  nvml::Device handle = nullptr;
  if (library->device_by_address(address.c_str(), &handle) != nvml::kSuccess) return sensors;
  unsigned value = 0;
  nvml::Return status = library->clock(handle, nvml::kClockMultiprocessors, &value);
  sensors.clock_mhz = reading(status, value, 1);
  status = library->clock(handle, nvml::kClockMemory, &value);
  sensors.memory_clock_mhz = reading(status, value, 1);
  status = library->power(handle, &value);
  sensors.power_w = reading(status, value, 1e-3);
  return sensors;
}

}  // namespace fsdp::cuda
