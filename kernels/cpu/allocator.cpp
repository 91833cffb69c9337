// Heap and StreamAllocator: see allocator.h.
#include "kernels/cpu/allocator.h"

#include <algorithm>

#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

namespace fsdp::cpu {

void mark_usable(void* data, size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(data, bytes); }
void mark_free(void* data, size_t bytes) { ASAN_POISON_MEMORY_REGION(data, bytes); }

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kGrowth = size_t{32} << 20;  // address space made usable at a time, not memory

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

// The range is reserved without memory behind it; pages get memory when they are first touched.
Heap::Heap(size_t reserved_bytes) : reserved_(round_up(reserved_bytes, kGrowth)) {
  mapped_bytes_ = reserved_ + kHugePage;
  mapped_ =
      mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped_ == MAP_FAILED) {  // for instance under ulimit -v: every allocation will fail
    mapped_ = nullptr;
    reserved_ = 0;
    return;
  }
  base_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<size_t>(mapped_), kHugePage));
  madvise(base_, reserved_, MADV_HUGEPAGE);  // advice: no harm where the kernel does not take it
}

Heap::~Heap() {
  if (!mapped_) return;
  mark_usable(base_, usable_end_);
  munmap(mapped_, mapped_bytes_);
}

bool Heap::commit(size_t end) {
  if (end > reserved_) return false;
  if (end <= usable_end_) return true;
  const size_t grown = std::min(reserved_, round_up(end, kGrowth));
  if (mprotect(base_ + usable_end_, grown - usable_end_, PROT_READ | PROT_WRITE) != 0) return false;
  mark_free(base_ + usable_end_, grown - usable_end_);
  usable_end_ = grown;
  return true;
}

std::byte* Heap::allocate(size_t bytes) {
  const auto fit = free_by_size_.lower_bound({bytes, 0});
  if (fit != free_by_size_.end()) {
    const auto [free_bytes, offset] = *fit;
    remove_free(free_.find(offset));
    if (free_bytes > bytes) add_free(offset + bytes, free_bytes - bytes);
    return base_ + offset;
  }
  // Grow at the top, from the free block that ends there if there is one.
  size_t offset = high_water_;
  const bool free_at_top =
      !free_.empty() && free_.rbegin()->first + free_.rbegin()->second == high_water_;
  if (free_at_top) offset = free_.rbegin()->first;
  if (bytes > reserved_ || !commit(offset + bytes)) return nullptr;
  if (free_at_top) remove_free(std::prev(free_.end()));
  high_water_ = offset + bytes;
  return base_ + offset;
}

void Heap::release(std::byte* data, size_t bytes) {
  size_t offset = static_cast<size_t>(data - base_);
  const auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      bytes += previous->second;
      remove_free(previous);
    }
  }
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    remove_free(next);
  }
  add_free(offset, bytes);
}

void Heap::add_free(size_t offset, size_t bytes) {
  free_.emplace(offset, bytes);
  free_by_size_.emplace(bytes, offset);
}

void Heap::remove_free(std::map<size_t, size_t>::iterator block) {
  free_by_size_.erase({block->second, block->first});
  free_.erase(block);
}

StreamAllocator::StreamAllocator()
    : limit_(static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
             static_cast<size_t>(sysconf(_SC_PAGESIZE))) {}

std::byte* StreamAllocator::allocate(const Stream& stream, size_t bytes) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Heap>& heap = heaps_[&stream];
  if (!heap) heap = std::make_unique<Heap>(limit_);
  return heap->allocate(bytes);
}

void StreamAllocator::release(const Stream& stream, std::byte* data, size_t bytes) {
  std::lock_guard lock(mutex_);
  heaps_.at(&stream)->release(data, bytes);
}

size_t StreamAllocator::high_water() const {
  std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [stream, heap] : heaps_) sum += heap->high_water();
  return sum;
}

}  // namespace fsdp::cpu
