// Each library is asked for itself; one that is not there is no error. Contract:
// kernels/cuda/installation.h.
#include "kernels/cuda/installation.h"

#include <cuda_runtime_api.h>

#include "core/error.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/nvml.h"

namespace fsdp::cuda {

Installation installation() {
  Installation found;
  if (cudaDriverGetVersion(&found.driver) != cudaSuccess) found.driver = 0;
  if (cudaRuntimeGetVersion(&found.runtime) != cudaSuccess) found.runtime = 0;
  (void)cudaGetLastError();
  try {
    found.cublas = lt::library().version();
  } catch (const Error&) {
  }
  if (dnn::missing().empty()) found.cudnn = dnn::library().version();
  return found;
}

int active_nvlinks(const std::string& pci_address) {
  const nvml::Library* library = nvml::library();
  nvml::Device device = nullptr;
  if (!library ||
      library->device_by_address((pci_address + ".0").c_str(), &device) != nvml::kSuccess) {
    return 0;
  }
  int links = 0;
  for (unsigned link = 0; link < nvml::kMostNvlinks; ++link) {
    int active = 0;
    if (library->nvlink(device, link, &active) == nvml::kSuccess && active == 1) ++links;
  }
  return links;
}

}  // namespace fsdp::cuda
