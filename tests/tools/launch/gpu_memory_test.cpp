// What is said of the memory that NCCL took: of ranks whose GPUs differ, the one with the least
// room. Measured on an emulated GPU: tests/cuda_emulator/memory_limit.sh.
#include "tools/launch/gpu_memory.h"

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST_CASE("of ranks that differ the least free and the most taken memory are told") {
  const std::vector<GpuMemory::Reading> of_ranks = {
      {.free_before = 70'000 * kMiB, .left = 69'900 * kMiB, .taken = 100 * kMiB},
      {.free_before = 60'000 * kMiB, .left = 59'800 * kMiB, .taken = 200 * kMiB},
      {.free_before = 80'000 * kMiB, .left = 79'850 * kMiB, .taken = 150 * kMiB}};
  CHECK(after_communicators(of_ranks) ==
        "GPU memory: at least 58.59 GiB free on each rank's GPU before NCCL's communicators, which "
        "took at most 200.00 MiB of a GPU");
  CHECK(after_step(of_ranks, 200 * kMiB) ==
        "GPU memory: NCCL and the libraries of kernels hold at most 200.00 MiB of a GPU "
        "after the first step; 200.00 MiB were assumed");
  CHECK(after_step(of_ranks, 199 * kMiB).starts_with("warning: GPU memory: "));
}

}  // namespace
}  // namespace fsdp::tools
