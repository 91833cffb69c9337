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

}  // namespace

const Library* library() {
  static const Library emulated = {initialise, device_by_address, clock, power};
  return &emulated;
}

}  // namespace fsdp::cuda::nvml
