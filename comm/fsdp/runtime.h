// What all units of a model share: the streams of a rank, the arena that lends them memory, and the
// backend that holds their masters. Owned by FullySharded.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "comm/mesh.h"

namespace fsdp::comm {

// The streams of a rank beside the compute stream, and why each is one of its own. (PyTorch FSDP2:
// FSDPCommContext.)
class CommStreams {
 public:
  // `masters`: the backend that holds them, where that is another one; else null.
  CommStreams(Backend& backend, Backend* masters, bool separate_reduce);

  // Casts a unit's masters into its buffer and gathers it. Not the compute stream: the next unit
  // arrives while this one is computed with.
  Stream& gather() const { return *gather_; }
  // Reduces a unit's gradients. Not the gather stream: in backward the gather of unit i-1 and the
  // reduce of unit i would wait for each other. (Without separate_reduce it is the gather stream.)
  Stream& reduce() const { return reduce_ ? *reduce_ : *gather_; }
  // Averages shards across replicas. Not the reduce stream: replicas are joined by other links than
  // the shard group, which can reduce the next unit meanwhile.
  Stream& replicas() const { return *replicas_; }

  // Waits for all of them, and for the compute streams; forgets their errors.
  void drain();

 private:
  Backend& backend_;
  Backend* masters_;
  std::unique_ptr<Stream> gather_;
  std::unique_ptr<Stream> reduce_;  // null: gather_ serves both
  std::unique_ptr<Stream> replicas_;
};

// Equal buffers of unsharded memory that are lent to one unit at a time. They are made by the
// communicator, so that peers may reach them directly.
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
  const Slot& slot(int buffer) const { return slots_[static_cast<size_t>(buffer)]; }

  Communicator& communicator_;
  Backend& backend_;
  size_t bytes_;
  MemoryCategory category_;
  Lifetime lifetime_;
  std::vector<Slot> slots_;
};

// [Note: masters elsewhere] Masters and optimizer state may live on another backend than the one
// that computes (offload). That backend's compute stream runs the optimizer. It meets the compute
// stream of the one that computes twice in a step, in both directions: after the last reduction,
// when gradients and flags are copied to it, and after the update, before the next gather copies
// masters back. Copies are made by the backend that computes: a GPU can reach the host's memory. A
// master in another dtype than the unit's is narrowed where it lives; gathers copy the result.

// to = from, on the compute stream of `backend`. Where one of them belongs to another backend, the
// copy comes after what that backend's compute stream has been given, and before what comes next.
void copy_in_order(Backend& backend, const Tensor& from, const Tensor& to);

struct FsdpRuntime {
  Backend& backend;
  Mesh& mesh;
  CommStreams& streams;
  uint32_t updates = 0;                   // steps finished; keys the random numbers of rounding
  EventPtr parameters_updated = nullptr;  // the optimizer's last write to the masters; may be null
  std::optional<int> ranks_with_pass = {};  // see FullySharded::begin_micro_step
  Tensor overflow = {};  // (), i32: set by a rank's own gradients, until it is shared
};

}  // namespace fsdp::comm
