// CUDA_CHECK: every call of the CUDA runtime goes through it. Not for launches:
// kernels/cuda/launch.h.
#pragma once

#include <source_location>
#include <string_view>

#include <cuda_runtime_api.h>

#include "core/machine_error.h"

namespace fsdp::cuda {

// "NAME: text of CUDA". Clears the error unless it is a fault, which nothing clears.
inline std::string words_of(cudaError_t error) {
  (void)cudaGetLastError();
  const bool is_fault = cudaPeekAtLastError() != cudaSuccess;
  return fmt::format("{}: {}{}", cudaGetErrorName(error), cudaGetErrorString(error),
                     is_fault ? " (by this or an earlier kernel: runtime.synchronous=true or "
                                "compute-sanitizer tells which)"
                              : "");
}

// Throws MachineError "[cuda] call: words (file:line)" unless `error` is cudaSuccess.
inline void check_call(cudaError_t error, std::string_view call,
                       std::source_location at = std::source_location::current()) {
  if (error == cudaSuccess) return;
  throw MachineError(
      fmt::format("[cuda] {}: {} ({}:{})", call, words_of(error), at.file_name(), at.line()));
}

// The GPU's fault, if it had one: a library tells of it by a status that does not name it.
inline cudaError_t fault() {
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total);  // as every call of the runtime, it fails after a fault
}

}  // namespace fsdp::cuda

#define CUDA_CHECK(call) ::fsdp::cuda::check_call((call), #call)
