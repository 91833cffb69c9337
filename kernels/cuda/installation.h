// What is installed for GPUs on this machine: the versions of the driver and of the libraries, and
// the links between GPUs. No CUDA header is needed to include this. Not here: which GPUs there are
// (cuda_devices.h), what they are doing (device_sensors.h).
#pragma once

#include <cstddef>
#include <string>

namespace fsdp::cuda {

// As each library writes its own version; 0: it is not there.
struct Installation {
  int driver = 0;     // the newest CUDA that the driver knows, 12040
  int runtime = 0;    // the CUDA of this program, 13000
  size_t cublas = 0;  // cuBLASLt, 130101
  size_t cudnn = 0;   // 91900
};
Installation installation();  // never throws

// Of the GPU at "0000:3b:00", how many NVLinks are up; 0 also where the driver does not say.
int active_nvlinks(const std::string& pci_address);

}  // namespace fsdp::cuda
