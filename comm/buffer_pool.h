// Equal buffers that are lent to one user at a time, such as a unit of the sharding layer. The
// communicator makes them, so that peers may reach them directly.
// Not here: who borrows when (comm/fsdp/fully_sharded.h).
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace fsdp::comm {

class BufferPool {
 public:
  enum class Lifetime : uint8_t {
    kPool,            // all buffers are allocated here, and a step allocates nothing
    kUntilGivenBack,  // each is allocated when it is first lent, and freed by give_back()
  };
  // Collective: every rank makes the same pools in the same order. With kUntilGivenBack acquire()
  // allocates, which is collective too where the communicator registers memory. Ranks would wait
  // for each other in every step, so Session turns that off (NcclOptions::register_buffers).
  BufferPool(Communicator& communicator, Backend& backend, size_t buffers, size_t bytes,
             MemoryCategory category, Lifetime lifetime = Lifetime::kPool);

  static constexpr int kNone = -1;
  // A free buffer, `preferred` if it is free (same unit, same phase: same address in every step);
  // kNone when all are lent.
  int acquire(int preferred);
  // `done`: the event after which the contents are needed no more.
  void release(int buffer, EventPtr done);
  // Frees what is not lent; the compute stream waits for its last use. Nothing with kPool.
  void give_back();

  void* data(int buffer) const { return slot(buffer).memory->data(); }
  // What a stream must wait for before it writes into a buffer just acquired; may be null.
  const EventPtr& free_since(int buffer) const { return slot(buffer).free_since; }
  void forget_events();  // all streams are idle
  bool all_lent() const;
  int size() const { return static_cast<int>(slots_.size()); }

 private:
  struct Slot {
    std::shared_ptr<CommBuffer> memory;
    EventPtr free_since;
    bool lent = false;
  };
  void allocate(Slot& slot);
  const Slot& slot(int buffer) const { return slots_[static_cast<size_t>(buffer)]; }

  Communicator& communicator_;
  Backend& backend_;
  size_t bytes_;
  MemoryCategory category_;
  Lifetime lifetime_;
  std::vector<Slot> slots_;
};

}  // namespace fsdp::comm
