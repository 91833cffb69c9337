// The part of NVML (NVIDIA Management Library) that is used, declared here because its header is in
// no package that building needs. Names and values: NVIDIA's NVML API reference guide.
#pragma once

namespace fsdp::cuda::nvml {

using Return = int;
constexpr Return kSuccess = 0;
using Device = struct nvmlDevice_st*;
constexpr int kClockMultiprocessors = 1;  // NVML_CLOCK_SM
constexpr int kClockMemory = 2;           // NVML_CLOCK_MEM

struct Library {
  Return (*initialise)();                                                // nvmlInit_v2
  Return (*device_by_address)(const char* pci_address, Device* device);  // ...HandleByPciBusId_v2
  Return (*clock)(Device device, int type, unsigned* mhz);               // nvmlDeviceGetClockInfo
  Return (*power)(Device device, unsigned* milliwatts);                  // nvmlDeviceGetPowerUsage
};
// Opened once; null where the driver has not installed it.
const Library* library();

}  // namespace fsdp::cuda::nvml
