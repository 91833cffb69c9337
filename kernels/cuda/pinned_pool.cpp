// Free lists by power of two.
#include "kernels/cuda/pinned_pool.h"

#include <bit>

#include "kernels/cuda/check.h"

namespace fsdp::cuda {

PinnedPool::~PinnedPool() {
  free_let_go();
  for (std::byte* slab : slabs_) (void)cudaFreeHost(slab);
}

std::shared_ptr<std::byte> PinnedPool::take_large(size_t bytes) {
  std::byte* block = nullptr;
  CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&block), bytes));
  return {block, [pool = shared_from_this()](std::byte* done) {
            const std::lock_guard lock(pool->mutex_);
            pool->let_go_.push_back(done);
          }};
}

// See [Note: where pinned memory is freed].
void PinnedPool::free_let_go() {
  std::vector<std::byte*> blocks;
  {
    const std::lock_guard lock(mutex_);
    blocks.swap(let_go_);
  }
  for (std::byte* block : blocks) (void)cudaFreeHost(block);
}

// The lock is not held: the driver may wait for streams, which wait for host tasks, which give
// blocks back.
std::byte* PinnedPool::take_of_new_slab(size_t size) {
  const size_t slab = std::max(size, size_t{64} << 10);  // small blocks come together
  std::byte* first = nullptr;
  CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&first), slab));
  const std::lock_guard lock(mutex_);
  slabs_.push_back(first);
  for (size_t at = size; at < slab; at += size) free_[size].push_back(first + at);
  return first;
}

std::byte* PinnedPool::take_free(size_t size) {
  const std::lock_guard lock(mutex_);
  std::vector<std::byte*>& blocks = free_[size];
  if (blocks.empty()) return nullptr;
  std::byte* const block = blocks.back();
  blocks.pop_back();
  return block;
}

std::shared_ptr<std::byte> PinnedPool::take(size_t bytes) {
  constexpr size_t kLarge = 1 << 20;
  free_let_go();
  if (bytes > kLarge) return take_large(bytes);
  const size_t size = std::bit_ceil(std::max<size_t>(bytes, 512));
  std::byte* block = take_free(size);
  if (!block) block = take_of_new_slab(size);
  return {block, [pool = shared_from_this(), size](std::byte* done) {
            const std::lock_guard lock(pool->mutex_);
            pool->free_[size].push_back(done);
          }};
}

}  // namespace fsdp::cuda
