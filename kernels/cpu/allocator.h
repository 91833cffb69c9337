// Memory of the CPU's streams. Each stream has one heap; a block that is released can be handed out
// again at once for later work of the same stream, because that stream runs in order. Like a
// stream-ordered device pool: the host decides in program order, nobody waits.
// Not here: counting by category (core/memory_ledger.h, done by CpuBackend).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "kernels/cpu/heap_layout.h"

namespace fsdp {
class Stream;
}

namespace fsdp::cpu {

// One address-ordered heap (heap_layout.h): a range of addresses of which the lower part is in use.
//
// [Note: addresses of a heap] The whole range is reserved at once: nobody else is put there, and
// only the part in use gets memory. Where the addresses of the process are limited (ulimit -v), a
// reservation counts against the limit like memory in use. There the range begins in a part of the
// address space where the kernel puts nothing by itself, and grows by what is asked for.
class Heap {
 public:
  enum class Addresses : uint8_t { kReserved, kGrown };
  // At most `limit_bytes`.
  explicit Heap(size_t limit_bytes, Addresses addresses = Addresses::kReserved);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  std::byte* allocate(size_t bytes);  // a multiple of the granularity; null: does not fit
  void release(std::byte* data, size_t bytes);
  size_t high_water() const { return layout_.high_water(); }
  const HeapLayout& layout() const { return layout_; }

 private:
  void reserve();
  bool commit(size_t end);  // makes [0, end) usable
  bool grow(size_t end);

  Addresses addresses_;
  void* mapped_ = nullptr;  // as the kernel returned it; base_ is aligned to a huge page
  size_t mapped_bytes_ = 0;
  std::byte* base_ = nullptr;  // null: no memory, or none yet
  size_t limit_;               // of bytes from base_ on
  size_t usable_end_ = 0;      // [0, usable_end_) may be touched
  HeapLayout layout_;
};

class StreamAllocator {
 public:
  StreamAllocator();

  // `bytes` must be a multiple of kAllocationGranularity, not 0. Null: out of memory.
  std::byte* allocate(const Stream& stream, size_t bytes);
  void release(const Stream& stream, std::byte* data, size_t bytes);
  size_t limit() const { return limit_; }  // bytes of one heap: the memory of the machine
  size_t high_water() const;               // ends of the highest blocks ever, over all heaps
  size_t in_use() const;                   // bytes of blocks, over all heaps
  // By how much high_water() would grow.
  size_t growth(const Stream& stream, size_t bytes) const;

 private:
  const size_t limit_;
  const Heap::Addresses addresses_;
  mutable std::mutex mutex_;
  std::map<const Stream*, std::unique_ptr<Heap>> heaps_;
  size_t in_use_ = 0;
};

// Under AddressSanitizer memory is marked in stream order, so that a task that touches a block
// before its allocation or after its release is reported; no-ops elsewhere.
constexpr bool kMarksMemory =
#ifdef __SANITIZE_ADDRESS__
    true;
#else
    false;
#endif
void mark_usable(void* data, size_t bytes);
void mark_free(void* data, size_t bytes);

}  // namespace fsdp::cpu
