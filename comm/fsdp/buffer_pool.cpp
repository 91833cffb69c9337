// Lending of arena buffers.
#include "comm/fsdp/buffer_pool.h"

namespace fsdp::comm {

BufferPool::BufferPool(Communicator& communicator, Backend& backend, size_t buffers, size_t bytes,
                       MemoryCategory category) {
  for (size_t i = 0; i < buffers; ++i) {
    slots_.push_back({communicator.allocate(backend, bytes, category), nullptr, false});
  }
}

int BufferPool::acquire(int preferred) {
  const int count = size();
  for (int i = 0; i < count; ++i) {
    const int candidate = (preferred + i) % count;
    Slot& s = slots_[static_cast<size_t>(candidate)];
    if (s.lent) continue;
    s.lent = true;
    return candidate;
  }
  return kNone;
}

void BufferPool::release(int buffer, EventPtr done) {
  Slot& s = slots_[static_cast<size_t>(buffer)];
  s.lent = false;
  s.free_since = std::move(done);
}

void BufferPool::forget_events() {
  for (Slot& s : slots_) s.free_since = nullptr;
}

}  // namespace fsdp::comm
