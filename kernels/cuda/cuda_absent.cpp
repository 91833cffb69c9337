// Stands in for kernels/cuda where no CUDA compiler was found.
#include "kernels/cuda/cuda_devices.h"
#include "kernels/cuda/device_sensors.h"
#include "kernels/cuda/installation.h"

namespace fsdp::cuda {

DeviceCount count_devices() {
  return {0,
          "this program was built without CUDA; make CUDA=1 builds it for GPUs of compute "
          "capability 8.0 "
          "or newer (tools/setup.sh --cuda brings what that needs)"};
}

std::string missing_code(int) { return count_devices().reason; }

FreeMemory free_memory(int) { fail("[cuda] {}", count_devices().reason); }

void set_up_environment() {}

bool built() { return false; }

std::unique_ptr<Backend> make_backend(const CudaOptions&) {
  fail("[cuda] {}", count_devices().reason);
}

std::string cudnn_missing() { return count_devices().reason; }

Installation installation() { return {}; }
int active_nvlinks(const std::string&) { return 0; }

DeviceSensors read_sensors(int) { fail("[cuda] {}", count_devices().reason); }

struct DeviceMonitor::Handles {};
DeviceMonitor::DeviceMonitor(int) { fail("[cuda] {}", count_devices().reason); }
DeviceMonitor::~DeviceMonitor() = default;
DeviceLoad DeviceMonitor::read() const { return {}; }

}  // namespace fsdp::cuda
