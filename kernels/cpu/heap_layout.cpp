// Contract: kernels/cpu/heap_layout.h.
#include "kernels/cpu/heap_layout.h"

#include <iterator>

namespace fsdp::cpu {

bool HeapLayout::free_at_top() const {
  return !free_.empty() && free_.rbegin()->first + free_.rbegin()->second == high_water_;
}

size_t HeapLayout::end_after(size_t bytes) const {
  if (free_by_size_.lower_bound({bytes, 0}) != free_by_size_.end()) return high_water_;
  return (free_at_top() ? free_.rbegin()->first : high_water_) + bytes;
}

size_t HeapLayout::place(size_t bytes) {
  const auto fit = free_by_size_.lower_bound({bytes, 0});
  if (fit != free_by_size_.end()) {
    const auto [free_bytes, offset] = *fit;
    remove_free(free_.find(offset));
    if (free_bytes > bytes) add_free(offset + bytes, free_bytes - bytes);
    return offset;
  }
  // Grow at the top, from the free block that ends there if there is one.
  size_t offset = high_water_;
  if (free_at_top()) {
    offset = free_.rbegin()->first;
    remove_free(std::prev(free_.end()));
  }
  high_water_ = offset + bytes;
  return offset;
}

void HeapLayout::release(size_t offset, size_t bytes) {
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

void HeapLayout::add_free(size_t offset, size_t bytes) {
  free_.emplace(offset, bytes);
  free_by_size_.emplace(bytes, offset);
}

void HeapLayout::remove_free(std::map<size_t, size_t>::iterator block) {
  free_by_size_.erase({block->second, block->first});
  free_.erase(block);
}

}  // namespace fsdp::cpu
