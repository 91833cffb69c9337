// See [Note: what the pool keeps].
#include "tests/cuda_emulator/pool.h"

#include <algorithm>

#include "tests/cuda_emulator/emulator.h"

namespace fsdp::emulator {

size_t Pool::kept() const {
  size_t bytes = 0;
  for (const Kept& block : kept_) bytes += block.bytes;
  return bytes;
}

bool Pool::has_room(size_t bytes) const {
  return used_ + kept() + outside_ + bytes <= settings().memory;
}

bool Pool::take(size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  auto best = kept_.end();
  for (auto block = kept_.begin(); block != kept_.end(); ++block) {
    const bool usable = block->bytes >= bytes && (block->stream == stream || *block->released);
    if (usable && (best == kept_.end() || block->bytes < best->bytes)) best = block;
  }
  if (best != kept_.end()) {
    best->bytes -= bytes;
    if (best->bytes == 0) kept_.erase(best);
  } else if (!has_room(bytes)) {
    return false;
  }
  used_ += bytes;
  used_peak_ = std::max(used_peak_, used_);
  reserved_peak_ = std::max(reserved_peak_, used_ + kept());
  return true;
}

std::shared_ptr<std::atomic<bool>> Pool::give_back(size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  kept_.push_back({bytes, stream, std::make_shared<std::atomic<bool>>(false)});
  return kept_.back().released;
}

void Pool::trim() {
  const std::lock_guard lock(mutex_);
  std::erase_if(kept_, [](const Kept& block) { return block.released->load(); });
}

bool Pool::take_outside(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!has_room(bytes)) return false;
  outside_ += bytes;
  return true;
}

void Pool::give_back_outside(size_t bytes) {
  const std::lock_guard lock(mutex_);
  outside_ -= bytes;
}

size_t Pool::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

size_t Pool::reserved() const {
  const std::lock_guard lock(mutex_);
  return used_ + kept();
}

size_t Pool::used_peak() const {
  const std::lock_guard lock(mutex_);
  return used_peak_;
}

size_t Pool::reserved_peak() const {
  const std::lock_guard lock(mutex_);
  return reserved_peak_;
}

size_t Pool::free() const {
  const std::lock_guard lock(mutex_);
  const size_t taken = used_ + kept() + outside_, all = settings().memory;
  return all - std::min<size_t>(all, taken);
}

}  // namespace fsdp::emulator
