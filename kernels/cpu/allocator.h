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
#include <set>

namespace fsdp {
class Stream;
}

namespace fsdp::cpu {

// One address-ordered heap: a range of addresses of which the lower part is in use. Best fit,
// lowest address first, splits and coalesces, so that a step that repeats gets the addresses of the
// last one, and the touched memory stays close to the peak of what is in use.
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
  size_t high_water() const { return high_water_; }

 private:
  void add_free(size_t offset, size_t bytes);
  void remove_free(std::map<size_t, size_t>::iterator block);
  void reserve();
  bool commit(size_t end);  // makes [0, end) usable
  bool grow(size_t end);

  Addresses addresses_;
  void* mapped_ = nullptr;  // as the kernel returned it; base_ is aligned to a huge page
  size_t mapped_bytes_ = 0;
  std::byte* base_ = nullptr;                         // null: no memory, or none yet
  size_t limit_;                                      // of bytes from base_ on
  size_t usable_end_ = 0;                             // [0, usable_end_) may be touched
  size_t high_water_ = 0;                             // end of the highest block ever handed out
  std::map<size_t, size_t> free_;                     // offset -> bytes; no two are neighbours
  std::set<std::pair<size_t, size_t>> free_by_size_;  // (bytes, offset)
};

class StreamAllocator {
 public:
  StreamAllocator();

  // `bytes` must be a multiple of kAllocationGranularity, not 0. Null: out of memory.
  std::byte* allocate(const Stream& stream, size_t bytes);
  void release(const Stream& stream, std::byte* data, size_t bytes);
  size_t limit() const { return limit_; }  // bytes of one heap: the memory of the machine
  size_t high_water() const;               // bytes ever in use at a time, over all heaps

 private:
  const size_t limit_;
  const Heap::Addresses addresses_;
  mutable std::mutex mutex_;
  std::map<const Stream*, std::unique_ptr<Heap>> heaps_;
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
