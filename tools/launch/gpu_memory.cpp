// Contract: tools/launch/gpu_memory.h.
#include "tools/launch/gpu_memory.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text/byte_size.h"

namespace fsdp::tools {

using Reading = GpuMemory::Reading;

Reading GpuMemory::read(size_t held) const {
  const cuda::FreeMemory now = cuda::free_memory(device_);
  const size_t all = before_.bytes + before_.pool - before_.pool_used;
  const size_t left = now.bytes + now.pool - now.pool_used + held;
  return {.free_before = before_.bytes, .left = left, .taken = all - std::min(all, left)};
}

std::string after_communicators(const std::vector<Reading>& of_ranks) {
  const size_t free = std::ranges::min(of_ranks, {}, &Reading::free_before).free_before;
  const size_t taken = std::ranges::max(of_ranks, {}, &Reading::taken).taken;
  return fmt::format(
      "GPU memory: at least {} free on each rank's GPU before NCCL's communicators, which took at "
      "most {} of a GPU",
      byte_size_text(free), byte_size_text(taken));
}

std::string after_step(const std::vector<Reading>& of_ranks, size_t assumed) {
  const size_t taken = std::ranges::max(of_ranks, {}, &Reading::taken).taken;
  return fmt::format(
      "{}GPU memory: NCCL and the libraries of kernels hold at most {} of a GPU after the first "
      "step; {} were assumed{}",
      taken > assumed ? "warning: " : "", byte_size_text(taken), byte_size_text(assumed),
      taken > assumed ? ", so that a run may find too little: runtime.memory_limit limits it" : "");
}

}  // namespace fsdp::tools
