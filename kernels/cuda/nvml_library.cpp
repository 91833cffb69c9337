// Opens NVML, which comes with the driver. The emulator of the tests has its own:
// tests/cuda_emulator/nvml.cpp.
#include <optional>

#include "core/dynamic_library.h"
#include "core/error.h"
#include "kernels/cuda/nvml.h"

namespace fsdp::cuda::nvml {
namespace {

std::optional<Library> open() {
  try {
    const DynamicLibrary from("NVML", {"libnvidia-ml.so.1"});
    Library to{};
    from.find(to.initialise, "nvmlInit_v2");
    from.find(to.device_by_address, "nvmlDeviceGetHandleByPciBusId_v2");
    from.find(to.clock, "nvmlDeviceGetClockInfo");
    from.find(to.power, "nvmlDeviceGetPowerUsage");
    from.find(to.utilisation, "nvmlDeviceGetUtilizationRates");
    from.find(to.memory, "nvmlDeviceGetMemoryInfo");
    from.find(to.pcie, "nvmlDeviceGetPcieThroughput");
    from.find(to.nvlink, "nvmlDeviceGetNvLinkState");
    if (to.initialise() == kSuccess) return to;
  } catch (const Error&) {  // clocks stay unknown
  }
  return std::nullopt;
}

}  // namespace

const Library* library() {
  static const std::optional<Library> opened = open();
  return opened ? &*opened : nullptr;
}

}  // namespace fsdp::cuda::nvml
