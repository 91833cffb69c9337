// Which GPUs this program can compute on, and why not on the others.
#include <algorithm>

#include <cuda_runtime_api.h>

#include "core/error.h"
#include "kernels/cuda/cuda_devices.h"
#include "kernels/cuda/kernel_image.h"

namespace fsdp::cuda {
namespace {

// "13.0" of 13000
std::string text_of(int version) {
  return fmt::format("{}.{}", version / 1000, version / 10 % 100);
}

// The newest CUDA that the driver knows, 12040; 0: there is no driver.
int driver_version() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) version = 0;
  (void)cudaGetLastError();
  return version;
}

// NVIDIA's rule: a driver runs programs of every CUDA with its first number, older or newer, but
// translates no PTX that is newer than its own CUDA.
std::string driver_too_old() {
  const int driver = driver_version();
  if (driver == 0) return "there is no NVIDIA driver (libcuda.so.1)";
  constexpr int kMajor = CUDART_VERSION / 1000;
  const std::string needed = kMajor == 12   ? "driver 525 or newer"
                             : kMajor == 13 ? "driver 580 or newer"
                                            : fmt::format("a driver of CUDA {}", kMajor);
  return fmt::format(
      "the NVIDIA driver knows CUDA {} and is older than this program's CUDA {}, which needs {}{}",
      text_of(driver), text_of(CUDART_VERSION), needed,
      driver < 12000 ? "" : fmt::format("; built with CUDA {}, it would run", driver / 1000));
}

std::vector<std::string> ids_of(int devices) {
  std::vector<std::string> ids;
  for (int device = 0; device < devices; ++device) {
    cudaDeviceProp properties = {};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
      (void)cudaGetLastError();  // whoever opens it reports it
    }
    ids.push_back(fmt::format("{:04x}:{:02x}:{:02x} ", properties.pciDomainID, properties.pciBusID,
                              properties.pciDeviceID));
    for (const char byte : properties.uuid.bytes) {
      ids.back() += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    }
  }
  return ids;
}

// Kernels use cp.async and the 16 x 8 x 16 products of bf16, which came with compute
// capability 8.0.
std::string too_old(int devices) {
  for (int device = 0; device < devices; ++device) {
    cudaDeviceProp properties = {};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
      (void)cudaGetLastError();  // whoever opens it reports it
    } else if (properties.major < 8) {
      return fmt::format(
          "GPU {} ({}) has compute capability {}.{}; expected 8.0 or newer: A100, L40, H100 and "
          "the like. CUDA_VISIBLE_DEVICES with the other GPUs leaves it out",
          device, properties.name, properties.major, properties.minor);
    }
  }
  return "";
}

}  // namespace

DeviceCount count_devices() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) {
    const std::string reason = too_old(devices);
    return reason.empty() ? DeviceCount{devices, "", ids_of(devices)} : DeviceCount{0, reason};
  }
  (void)cudaGetLastError();
  if (error == cudaErrorInsufficientDriver) return {0, driver_too_old()};
  if (error == cudaSuccess || error == cudaErrorNoDevice) {
    return {0, "the NVIDIA driver shows this process no GPU"};
  }
  return {.reason = cudaGetErrorString(error), .of_machine = true};
}

std::string missing_code(int device) {
  cudaDeviceProp gpu = {};
  if (cudaSetDevice(device) != cudaSuccess ||
      cudaGetDeviceProperties(&gpu, device) != cudaSuccess) {
    (void)cudaGetLastError();  // whoever opens it reports it
    return "";
  }
  const cudaError_t error = find_kernel_image();
  if (error == cudaSuccess) return "";
  (void)cudaGetLastError();
  const bool old_driver = error == cudaErrorUnsupportedPtxVersion;
  if (!old_driver && error != cudaErrorNoKernelImageForDevice &&
      error != cudaErrorInvalidDeviceFunction) {
    return "";  // whoever starts a kernel reports it
  }
  const std::string cuda = text_of(CUDART_VERSION);
  const int kind = 10 * gpu.major + gpu.minor;
  return fmt::format(
      "GPU {} ({}) has compute capability {}.{}, and this program has code for {} (its CUDA is {}, "
      "the driver knows {}): {}; make CUDA=1 CUDA_ARCH={} builds code for it{}",
      device, gpu.name, gpu.major, gpu.minor, FSDP_CUDA_CODE, cuda, text_of(driver_version()),
      old_driver ? fmt::format("the driver cannot translate PTX of CUDA {}", cuda)
                 : "none runs on this GPU",
      kind == 90 ? "90a" : std::to_string(kind),
      old_driver ? fmt::format(", or a driver of CUDA {} translates", cuda) : "");
}

}  // namespace fsdp::cuda
