// What NCCL and other libraries take of a GPU besides the program's own pool. No library tells it
// before, so it is measured: what is free before the communicators are made, after that, and after
// a step, in which they connect their ranks. Not here: what is assumed until then
// (tools/predict/memory_limit.h).
#pragma once

#include <string>
#include <vector>

#include "kernels/cuda/cuda_devices.h"

namespace fsdp::tools {

class GpuMemory {
 public:
  explicit GpuMemory(int device) : device_(device), before_(cuda::free_memory(device)) {}

  struct Reading {           // bytes
    size_t free_before = 0;  // when the GpuMemory was made
    size_t left = 0;         // that the rank may hold, what it holds included
    size_t taken = 0;        // by libraries, since the GpuMemory was made
  };
  // `held`: by this rank, as its ledger counts; NCCL's buffers are not of the pool.
  Reading read(size_t held) const;

 private:
  int device_;
  cuda::FreeMemory before_;
};

// What is said of the ranks' readings. `assumed`: bytes for NCCL.
std::string after_communicators(const std::vector<GpuMemory::Reading>& of_ranks);
std::string after_step(const std::vector<GpuMemory::Reading>& of_ranks, size_t assumed);

}  // namespace fsdp::tools
