// The lending of buffers. Contract: comm/buffer_pool.h.
#include "comm/buffer_pool.h"

#include <algorithm>

namespace fsdp::comm {

BufferPool::BufferPool(Communicator& communicator, Backend& backend, size_t buffers, size_t bytes,
                       MemoryCategory category, Lifetime lifetime)
    : communicator_(communicator),
      backend_(backend),
      bytes_(bytes),
      category_(category),
      lifetime_(lifetime),
      slots_(buffers) {
  if (lifetime_ == Lifetime::kUntilGivenBack) return;
  for (Slot& s : slots_) allocate(s);
}

// The bytes may have been others', with which the compute stream is not done yet.
void BufferPool::allocate(Slot& s) {
  s.memory = communicator_.allocate(backend_, bytes_, category_);
  s.free_since = backend_.record(backend_.compute_stream());
}

int BufferPool::acquire(int preferred) {
  const int count = size();
  for (int i = 0; i < count; ++i) {
    const int candidate = (preferred + i) % count;
    Slot& s = slots_[static_cast<size_t>(candidate)];
    if (s.lent) continue;
    if (!s.memory) allocate(s);
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

void BufferPool::give_back() {
  if (lifetime_ == Lifetime::kPool) return;
  for (Slot& s : slots_) {
    if (s.lent || !s.memory) continue;
    backend_.wait(backend_.compute_stream(), s.free_since);
    s = {};
  }
}

bool BufferPool::all_lent() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.lent; });
}

void BufferPool::forget_events() {
  for (Slot& s : slots_) s.free_since = nullptr;
}

}  // namespace fsdp::comm
