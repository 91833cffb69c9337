// Where the blocks of one heap lie: offsets, without memory. Best fit, lowest address first, splits
// and coalesces, so that a step that repeats gets the addresses of the last one, and the touched
// memory stays close to the peak of what is in use. The heaps of the CPU have one (allocator.h),
// and so has what only predicts them (kernels/meta/heap_forecast.h).
#pragma once

#include <cstddef>
#include <map>
#include <set>

namespace fsdp::cpu {

class HeapLayout {
 public:
  size_t end_after(size_t bytes) const;  // what high_water() would be after place(bytes)
  size_t place(size_t bytes);            // the offset
  void release(size_t offset, size_t bytes);
  size_t high_water() const { return high_water_; }

 private:
  bool free_at_top() const;
  void add_free(size_t offset, size_t bytes);
  void remove_free(std::map<size_t, size_t>::iterator block);

  size_t high_water_ = 0;                             // end of the highest block ever placed
  std::map<size_t, size_t> free_;                     // offset -> bytes; no two are neighbours
  std::set<std::pair<size_t, size_t>> free_by_size_;  // (bytes, offset)
};

}  // namespace fsdp::cpu
