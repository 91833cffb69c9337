// Free lists by power of two.
#include "kernels/cuda/pinned_pool.h"

#include <bit>

#include "kernels/cuda/check.h"

namespace fsdp::cuda {

PinnedPool::~PinnedPool() {
  for (const auto& [size, blocks] : free_) {
    for (std::byte* block : blocks) (void)cudaFreeHost(block);
  }
}

std::shared_ptr<std::byte> PinnedPool::take(size_t bytes) {
  const size_t size = std::bit_ceil(std::max<size_t>(bytes, 512));
  std::byte* block = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::byte*>& blocks = free_[size];
    if (!blocks.empty()) {
      block = blocks.back();
      blocks.pop_back();
    }
  }
  if (!block) CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&block), size));
  return {block, [pool = shared_from_this(), size](std::byte* done) {
            const std::lock_guard lock(pool->mutex_);
            pool->free_[size].push_back(done);
          }};
}

}  // namespace fsdp::cuda
