// CUDA_CHECK: every call of the CUDA runtime goes through it. Not for launches:
// kernels/cuda/launch.h.
#pragma once

#include <string_view>

#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda_devices.h"

namespace fsdp::cuda {

// Throws DeviceError "[cuda] call: NAME: text (file:line)" and clears the error unless the context
// is lost.
[[noreturn]] inline void fail_call(cudaError_t error, std::string_view call, const char* file,
                                   int line) {
  (void)cudaGetLastError();
  throw DeviceError(fmt::format("[cuda] {}: {}: {} ({}:{})", call, cudaGetErrorName(error),
                                cudaGetErrorString(error), file, line));
}

// For whoever got an error from a library: it tells of a GPU's fault by a status that names none.
// Throws as above if the context is lost.
inline void throw_fault(std::string_view call, const char* file, int line) {
  size_t free = 0, total = 0;
  const cudaError_t fault = cudaMemGetInfo(&free, &total);  // as every call, it tells of a fault
  if (fault != cudaSuccess) fail_call(fault, call, file, line);
}

}  // namespace fsdp::cuda

#define CUDA_CHECK(call)                                                    \
  do {                                                                      \
    const cudaError_t cuda_check_error = (call);                            \
    if (cuda_check_error != cudaSuccess) [[unlikely]] {                     \
      ::fsdp::cuda::fail_call(cuda_check_error, #call, __FILE__, __LINE__); \
    }                                                                       \
  } while (false)
