// What a GPU is doing while it works: for benchmarks, which say at what clocks and power they were
// measured, and for runs, which note it every second. No CUDA header is needed to include this. Not
// here: what it can do (cuda_devices.h).
#pragma once

#include <cstddef>
#include <memory>
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

// Each of them none where NVML, or for the pool CUDA, does not say.
struct DeviceLoad {
  std::optional<double> utilisation;   // %, of the last moments in which a kernel ran
  std::optional<double> memory_used;   // bytes, of all processes
  std::optional<double> memory_total;  // bytes
  std::optional<double> memory_pool;   // bytes that this process's pool has taken of them
  std::optional<double> power_w;
  std::optional<double> pcie_received, pcie_sent;  // bytes a second
};

// One GPU, opened once to be asked often. It is found by its PCI address: NVML numbers all GPUs of
// the machine, CUDA those of CUDA_VISIBLE_DEVICES.
class DeviceMonitor {
 public:
  explicit DeviceMonitor(int device);  // Error when there is no such device
  ~DeviceMonitor();
  DeviceMonitor(const DeviceMonitor&) = delete;
  DeviceMonitor& operator=(const DeviceMonitor&) = delete;

  const std::string& name() const { return name_; }
  // Waits for no work of the GPU; takes 40 ms, because PCIe throughput is measured for so long.
  DeviceLoad read() const;

 private:
  struct Handles;
  std::string name_;
  std::unique_ptr<Handles> handles_;
};

}  // namespace fsdp::cuda
