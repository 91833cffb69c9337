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

// Null where NVML is not there, or does not know the device.
const nvml::Library* find_device(const cudaDeviceProp& properties, nvml::Device& handle) {
  const nvml::Library* library = nvml::library();
  if (!library) return nullptr;
  const std::string address = fmt::format("{:08x}:{:02x}:{:02x}.0", properties.pciDomainID,
                                          properties.pciBusID, properties.pciDeviceID);
  return library->device_by_address(address.c_str(), &handle) == nvml::kSuccess ? library : nullptr;
}

}  // namespace

DeviceSensors read_sensors(int device) {
  cudaDeviceProp properties = {};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  DeviceSensors sensors;
  sensors.name = properties.name;
  sensors.cache_bytes = static_cast<size_t>(properties.l2CacheSize);
  nvml::Device handle = nullptr;
  const nvml::Library* library = find_device(properties, handle);
  if (!library) return sensors;
  unsigned value = 0;
  nvml::Return status = library->clock(handle, nvml::kClockMultiprocessors, &value);
  sensors.clock_mhz = reading(status, value, 1);
  status = library->clock(handle, nvml::kClockMemory, &value);
  sensors.memory_clock_mhz = reading(status, value, 1);
  status = library->power(handle, &value);
  sensors.power_w = reading(status, value, 1e-3);
  return sensors;
}

struct DeviceMonitor::Handles {
  int device = 0;
  cudaMemPool_t pool = nullptr;
  const nvml::Library* library = nullptr;  // null: NVML says nothing
  nvml::Device nvml = nullptr;
};

DeviceMonitor::DeviceMonitor(int device) : handles_(std::make_unique<Handles>()) {
  cudaDeviceProp properties = {};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  name_ = properties.name;
  handles_->device = device;
  CUDA_CHECK(cudaDeviceGetDefaultMemPool(&handles_->pool, device));
  handles_->library = find_device(properties, handles_->nvml);
}

DeviceMonitor::~DeviceMonitor() = default;

DeviceLoad DeviceMonitor::read() const {
  DeviceLoad load;
  uint64_t pool = 0;
  // A thread that has not chosen a device would open a context on the first one.
  if (cudaSetDevice(handles_->device) == cudaSuccess &&
      cudaMemPoolGetAttribute(handles_->pool, cudaMemPoolAttrReservedMemCurrent, &pool) ==
          cudaSuccess) {
    load.memory_pool = static_cast<double>(pool);
  } else {
    (void)cudaGetLastError();  // whoever computes reports it
  }
  const nvml::Library* library = handles_->library;
  if (!library) return load;
  nvml::Utilisation rates = {};
  nvml::Return status = library->utilisation(handles_->nvml, &rates);
  load.utilisation = reading(status, rates.gpu, 1);
  nvml::Memory memory = {};
  if (library->memory(handles_->nvml, &memory) == nvml::kSuccess) {
    load.memory_used = static_cast<double>(memory.used);
    load.memory_total = static_cast<double>(memory.total);
  }
  unsigned value = 0;
  status = library->power(handles_->nvml, &value);
  load.power_w = reading(status, value, 1e-3);
  status = library->pcie(handles_->nvml, nvml::kPcieReceived, &value);
  load.pcie_received = reading(status, value, 1e3);
  status = library->pcie(handles_->nvml, nvml::kPcieSent, &value);
  load.pcie_sent = reading(status, value, 1e3);
  return load;
}

}  // namespace fsdp::cuda
