// Heap and StreamAllocator: see allocator.h.
#include "kernels/cpu/allocator.h"

#include <algorithm>

#include <sys/mman.h>
#include <sys/resource.h>
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
// Where heaps that grow begin: between the program and the kernel's own choices, which are at the
// top. Each has room for far more than a machine has.
constexpr uintptr_t kFirstGrown = uintptr_t{1} << 45;
constexpr uintptr_t kRoomToGrow = uintptr_t{1} << 39;
constexpr int kPlacesToGrow = 96;

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

bool addresses_are_limited() {
  rlimit limit = {};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

Heap::Heap(size_t limit_bytes, Addresses addresses)
    : addresses_(addresses), limit_(round_up(limit_bytes, kGrowth)) {
  if (addresses_ == Addresses::kReserved) reserve();
}

// The range is reserved without memory behind it; pages get memory when they are first touched.
void Heap::reserve() {
  mapped_bytes_ = limit_ + kHugePage;
  mapped_ =
      mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped_ == MAP_FAILED) {  // every allocation will fail
    mapped_ = nullptr;
    limit_ = 0;
    return;
  }
  base_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<size_t>(mapped_), kHugePage));
  madvise(base_, limit_, MADV_HUGEPAGE);  // advice: no harm where the kernel does not take it
}

Heap::~Heap() {
  if (usable_end_ > 0) mark_usable(base_, usable_end_);
  if (mapped_) {
    munmap(mapped_, mapped_bytes_);
  } else if (usable_end_ > 0) {
    munmap(base_, usable_end_);
  }
}

bool Heap::commit(size_t end) {
  if (end > limit_) return false;
  if (end <= usable_end_) return true;
  if (addresses_ == Addresses::kGrown) return grow(end);
  const size_t grown = std::min(limit_, round_up(end, kGrowth));
  if (mprotect(base_ + usable_end_, grown - usable_end_, PROT_READ | PROT_WRITE) != 0) return false;
  mark_free(base_ + usable_end_, grown - usable_end_);
  usable_end_ = grown;
  return true;
}

// See [Note: addresses of a heap].
bool Heap::grow(size_t end) {
  const size_t bytes = round_up(end, kHugePage) - usable_end_;
  const auto mapped_at = [&](uintptr_t address) {
    void* const wanted = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
    void* const got =
        mmap(wanted, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == wanted) return true;
    if (got != MAP_FAILED) munmap(got, bytes);  // a kernel that takes the address for a hint
    return false;
  };
  bool done = false;
  if (base_) {
    done = mapped_at(reinterpret_cast<uintptr_t>(base_) + usable_end_);
  } else {
    for (int place = 0; place < kPlacesToGrow && !done; ++place) {  // other heaps have some
      const uintptr_t address = kFirstGrown + static_cast<uintptr_t>(place) * kRoomToGrow;
      done = mapped_at(address);
      if (done) base_ = reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
    }
  }
  if (!done) return false;
  madvise(base_ + usable_end_, bytes, MADV_HUGEPAGE);
  mark_free(base_ + usable_end_, bytes);
  usable_end_ += bytes;
  return true;
}

std::byte* Heap::allocate(size_t bytes) {
  if (bytes > limit_ || !commit(layout_.end_after(bytes))) return nullptr;
  return base_ + layout_.place(bytes);
}

void Heap::release(std::byte* data, size_t bytes) {
  layout_.release(static_cast<size_t>(data - base_), bytes);
}

StreamAllocator::StreamAllocator()
    : limit_(static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
             static_cast<size_t>(sysconf(_SC_PAGESIZE))),
      addresses_(addresses_are_limited() ? Heap::Addresses::kGrown : Heap::Addresses::kReserved) {}

std::byte* StreamAllocator::allocate(const Stream& stream, size_t bytes) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Heap>& heap = heaps_[&stream];
  if (!heap) heap = std::make_unique<Heap>(limit_, addresses_);
  std::byte* const data = heap->allocate(bytes);
  if (data) in_use_ += bytes;
  return data;
}

void StreamAllocator::release(const Stream& stream, std::byte* data, size_t bytes) {
  std::lock_guard lock(mutex_);
  heaps_.at(&stream)->release(data, bytes);
  in_use_ -= bytes;
}

size_t StreamAllocator::in_use() const {
  std::lock_guard lock(mutex_);
  return in_use_;
}

size_t StreamAllocator::growth(const Stream& stream, size_t bytes) const {
  std::lock_guard lock(mutex_);
  const auto heap = heaps_.find(&stream);
  return heap == heaps_.end()
             ? bytes
             : heap->second->layout().end_after(bytes) - heap->second->layout().high_water();
}

size_t StreamAllocator::high_water() const {
  std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [stream, heap] : heaps_) sum += heap->layout().high_water();
  return sum;
}

}  // namespace fsdp::cpu
