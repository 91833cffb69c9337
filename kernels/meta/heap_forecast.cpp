// Contract: kernels/meta/heap_forecast.h.
#include "kernels/meta/heap_forecast.h"

namespace fsdp::meta {

size_t HeapForecast::high_water_with(const Stream& stream, size_t bytes) const {
  const auto heap = heaps_.find(&stream);
  if (heap == heaps_.end()) return high_water_ + bytes;
  return high_water_ - heap->second.high_water() + heap->second.end_after(bytes);
}

void HeapForecast::place(const Stream& stream, uintptr_t address, size_t bytes) {
  cpu::HeapLayout& heap = heaps_[&stream];
  const size_t before = heap.high_water();
  blocks_[address] = {&heap, heap.place(bytes)};
  high_water_ += heap.high_water() - before;
  in_use_ += bytes;
}

void HeapForecast::release(uintptr_t address, size_t bytes) {
  const auto block = blocks_.find(address);
  block->second.heap->release(block->second.offset, bytes);
  blocks_.erase(block);
  in_use_ -= bytes;
}

size_t HeapForecast::plan(const Stream& stream, bool computes, const cpu::ScratchNeed& need) {
  return scratch_.try_emplace(&stream, computes ? threads_ : 1).first->second.plan(need);
}

}  // namespace fsdp::meta
