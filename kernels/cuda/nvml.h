// The part of NVML (NVIDIA Management Library) that is used, declared here because its header is in
// no package that building needs. Names and values: NVIDIA's NVML API reference guide.
#pragma once

namespace fsdp::cuda::nvml {

using Return = int;
constexpr Return kSuccess = 0;
using Device = struct nvmlDevice_st*;
constexpr int kClockMultiprocessors = 1;  // NVML_CLOCK_SM
constexpr int kClockMemory = 2;           // NVML_CLOCK_MEM

constexpr int kPcieSent = 0;      // NVML_PCIE_UTIL_TX_BYTES, by the GPU
constexpr int kPcieReceived = 1;  // NVML_PCIE_UTIL_RX_BYTES
struct Utilisation {              // nvmlUtilization_t, in % of the last moments
  unsigned gpu;                   // in which a kernel ran
  unsigned memory;                // in which memory was read or written
};
struct Memory {  // nvmlMemory_t, bytes, of all processes
  unsigned long long total, free, used;
};

constexpr unsigned kMostNvlinks = 18;  // NVML_NVLINK_MAX_LINKS

struct Library {
  Return (*initialise)();                                                // nvmlInit_v2
  Return (*device_by_address)(const char* pci_address, Device* device);  // ...HandleByPciBusId_v2
  Return (*clock)(Device device, int type, unsigned* mhz);               // nvmlDeviceGetClockInfo
  Return (*power)(Device device, unsigned* milliwatts);                  // nvmlDeviceGetPowerUsage
  Return (*utilisation)(Device device, Utilisation* rates);  // nvmlDeviceGetUtilizationRates
  Return (*memory)(Device device, Memory* bytes);            // nvmlDeviceGetMemoryInfo
  // nvmlDeviceGetPcieThroughput; it measures for 20 ms
  Return (*pcie)(Device device, int counter, unsigned* kilobytes_per_s);
  // nvmlDeviceGetNvLinkState; active: 1
  Return (*nvlink)(Device device, unsigned link, int* active);
};
// Opened once; null where the driver has not installed it.
const Library* library();

}  // namespace fsdp::cuda::nvml
