// Contract: tools/launch/gpu_memory.h.
#include "tools/launch/gpu_memory.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text/byte_size.h"

namespace fsdp::tools {

size_t GpuMemory::left(size_t held) const {
  const cuda::FreeMemory now = cuda::free_memory(device_);
  return now.bytes + now.pool - now.pool_used + held;
}

size_t GpuMemory::taken_by_libraries(size_t held) const {
  const size_t all = before_.bytes + before_.pool - before_.pool_used;
  return all - std::min(all, left(held));
}

std::string GpuMemory::after_communicators(size_t held) const {
  return fmt::format("GPU memory: {} free before NCCL's communicators, which took {}",
                     byte_size_text(before_.bytes), byte_size_text(taken_by_libraries(held)));
}

std::string GpuMemory::after_step(size_t held, size_t assumed) const {
  const size_t taken = taken_by_libraries(held);
  return fmt::format(
      "{}GPU memory: NCCL and the libraries of kernels hold {} after the first step; {} were "
      "assumed{}",
      taken > assumed ? "warning: " : "", byte_size_text(taken), byte_size_text(assumed),
      taken > assumed ? ", so that a run may find too little: runtime.memory_limit limits it" : "");
}

}  // namespace fsdp::tools
