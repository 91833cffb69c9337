// Free lists by power of two.
#include "kernels/cuda/pinned_pool.h"

#include <bit>

#include "kernels/cuda/check.h"

namespace fsdp::cuda {

PinnedPool::~PinnedPool() {
  for (std::byte* slab : slabs_) (void)cudaFreeHost(slab);
}

std::shared_ptr<std::byte> PinnedPool::take_large(size_t bytes) {
  std::byte* block = nullptr;
  CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&block), bytes));
  return {block, [](std::byte* done) { (void)cudaFreeHost(done); }};
}

std::shared_ptr<std::byte> PinnedPool::take(size_t bytes) {
  constexpr size_t kLarge = 1 << 20;
  if (bytes > kLarge) return take_large(bytes);
  constexpr size_t kSlab = 64 << 10;  // small blocks come together: the call may wait for the GPU
  const size_t size = std::bit_ceil(std::max<size_t>(bytes, 512));
  std::byte* block = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::byte*>& blocks = free_[size];
    if (blocks.empty()) {
      const size_t slab = std::max(size, kSlab);
      CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&block), slab));
      slabs_.push_back(block);
      for (size_t at = 0; at < slab; at += size) blocks.push_back(block + at);
    }
    block = blocks.back();
    blocks.pop_back();
  }
  return {block, [pool = shared_from_this(), size](std::byte* done) {
            const std::lock_guard lock(pool->mutex_);
            pool->free_[size].push_back(done);
          }};
}

}  // namespace fsdp::cuda
