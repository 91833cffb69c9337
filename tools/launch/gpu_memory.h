// What NCCL and other libraries take of a GPU besides the program's own pool. No library tells it
// before, so it is measured: what is free before the communicators are made, after that, and after
// a step, in which they connect their ranks. Not here: what is assumed until then
// (tools/predict/memory_limit.h).
#pragma once

#include <string>

#include "kernels/cuda/cuda_devices.h"

namespace fsdp::tools {

class GpuMemory {
 public:
  explicit GpuMemory(int device) : device_(device), before_(cuda::free_memory(device)) {}

  // `held`: by this rank, as its ledger counts; NCCL's buffers are not of the pool.
  size_t left(size_t held) const;  // that this rank may hold, with what it holds
  std::string after_communicators(size_t held) const;
  std::string after_step(size_t held, size_t assumed) const;  // `assumed`: bytes for NCCL

 private:
  size_t taken_by_libraries(size_t held) const;  // bytes, since this was made

  int device_;
  cuda::FreeMemory before_;
};

}  // namespace fsdp::tools
