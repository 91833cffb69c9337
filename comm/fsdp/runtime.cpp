// Streams, and the lending of buffers.
#include "comm/fsdp/runtime.h"

#include <algorithm>

namespace fsdp::comm {

CommStreams::CommStreams(Backend& backend, Backend* masters, bool separate_reduce)
    : backend_(backend),
      masters_(masters),
      gather_(backend.create_stream("gather")),
      reduce_(separate_reduce ? backend.create_stream("reduce") : nullptr),
      replicas_(backend.create_stream("replicas")) {}

void CommStreams::drain() {
  std::vector<Stream*> streams = {&backend_.compute_stream(), gather_.get(), reduce_.get(),
                                  replicas_.get()};
  if (masters_) streams.push_back(&masters_->compute_stream());
  for (Stream* stream : streams) {
    if (!stream) continue;
    try {
      stream->backend().synchronize(*stream);
    } catch (const Error&) {
    }
  }
}

void copy_in_order(Backend& backend, const Tensor& from, const Tensor& to) {
  Stream& stream = backend.compute_stream();
  const bool from_other = &from.backend() != &backend, to_other = &to.backend() != &backend;
  const auto meet = [&](Backend& a, Backend& b) {
    a.wait(a.compute_stream(), b.record(b.compute_stream()));
  };
  if (from_other) meet(backend, from.backend());
  if (to_other) meet(backend, to.backend());
  backend.copy(stream, to.data(), from.data(), to.bytes());
  if (from_other) meet(from.backend(), backend);
  if (to_other) meet(to.backend(), backend);
}

// ---------------------------------------------------------------------------- BufferPool

BufferPool::BufferPool(Communicator& communicator, Backend& backend, size_t buffers, size_t bytes,
                       MemoryCategory category, Lifetime lifetime)
    : communicator_(communicator),
      backend_(backend),
      bytes_(bytes),
      category_(category),
      lifetime_(lifetime),
      slots_(buffers) {
  if (lifetime_ == Lifetime::kUntilGivenBack) return;
  for (Slot& s : slots_) s.memory = communicator_.allocate(backend_, bytes_, category_);
}

int BufferPool::acquire(int preferred) {
  const int count = size();
  for (int i = 0; i < count; ++i) {
    const int candidate = (preferred + i) % count;
    Slot& s = slots_[static_cast<size_t>(candidate)];
    if (s.lent) continue;
    if (!s.memory) {
      s.memory = communicator_.allocate(backend_, bytes_, category_);
      // The bytes may have been others', with which the compute stream is not done yet.
      s.free_since = backend_.record(backend_.compute_stream());
    }
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
