// The emulated GPU's NVML: fixed readings, and no power, as on devices that do not measure it.
#include "kernels/cuda/nvml.h"

namespace fsdp::cuda::nvml {
namespace {

constexpr Return kNotSupported = 3;

Return initialise() { return kSuccess; }
Return device_by_address(const char*, Device* device) {
  *device = nullptr;
  return kSuccess;
}
Return clock(Device, int type, unsigned* mhz) {
  *mhz = type == kClockMemory ? 2619 : 1980;
  return kSuccess;
}
Return power(Device, unsigned*) { return kNotSupported; }
Return utilisation(Device, Utilisation* rates) {
  *rates = {.gpu = 75, .memory = 50};
  return kSuccess;
}
Return memory(Device, Memory* bytes) {
  *bytes = {.total = 8ull << 30, .free = 6ull << 30, .used = 2ull << 30};
  return kSuccess;
}
Return pcie(Device, int counter, unsigned* kilobytes_per_s) {
  *kilobytes_per_s = counter == kPcieSent ? 1000 : 2000;
  return kSuccess;
}

Return nvlink(Device, unsigned link, int* active) {
  *active = link < 4 ? 1 : 0;
  return link < 6 ? kSuccess : kNotSupported;
}

}  // namespace

const Library* library() {
  static const Library emulated = {
      initialise, device_by_address, clock, power, utilisation, memory, pcie, nvlink};
  return &emulated;
}

}  // namespace fsdp::cuda::nvml
