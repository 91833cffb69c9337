// The heaps and the scratch memory that a CpuBackend would have after the same calls, without
// memory.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "kernels/cpu/heap_layout.h"
#include "kernels/cpu/scratch.h"

namespace fsdp {
class Stream;
}

namespace fsdp::meta {

class HeapForecast {
 public:
  // `threads`: of the compute stream; `fixed_tiles`: see CpuOptions.
  explicit HeapForecast(int threads, bool fixed_tiles = false)
      : threads_(threads), products_(fixed_tiles) {}

  // What StreamAllocator::high_water() would say with `bytes` more, a multiple of the granularity.
  size_t high_water_with(const Stream& stream, size_t bytes) const;
  size_t high_water() const { return high_water_; }
  size_t in_use() const { return in_use_; }
  // `address` names the block until it is released.
  void place(const Stream& stream, uintptr_t address, size_t bytes);
  void release(uintptr_t address, size_t bytes);

  // By how much scratch memory grows.
  size_t plan(const Stream& stream, bool computes, const cpu::ScratchNeed& need);
  cpu::ScratchNeed of_product(const MatmulArgs& args, bool computes) {
    return products_.of(args, computes ? threads_ : 1);
  }

 private:
  struct Block {
    cpu::HeapLayout* heap;
    size_t offset;
  };
  int threads_;
  std::map<const Stream*, cpu::HeapLayout> heaps_;
  std::map<const Stream*, cpu::PlannedScratch> scratch_;
  std::unordered_map<uintptr_t, Block> blocks_;
  cpu::ProductScratch products_;
  size_t high_water_ = 0, in_use_ = 0;  // of all heaps
};

}  // namespace fsdp::meta
