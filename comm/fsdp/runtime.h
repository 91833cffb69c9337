// What all units of a model share: the streams of a rank, the arena that lends them memory, and the
// backend of what is offloaded. Owned by FullySharded.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "core/paged_tensors.h"

namespace fsdp::comm {

// The streams of a rank beside the compute stream, and why each is one of its own. (PyTorch FSDP2:
// FSDPCommContext.)
class CommStreams {
 public:
  // `host`: the backend of what is offloaded; null: nothing is. `file`: where it lies instead of
  // the host's memory; null: in that memory.
  CommStreams(Backend& backend, Backend* host, Backend* file, bool separate_reduce);

  // Casts a unit's masters into its buffer and gathers it. Not the compute stream: the next unit
  // arrives while this one is computed with.
  Stream& gather() const { return *gather_; }
  // Reduces a unit's gradients. Not the gather stream: in backward the gather of unit i-1 and the
  // reduce of unit i would wait for each other. (Without separate_reduce it is the gather stream.)
  Stream& reduce() const { return reduce_ ? *reduce_ : *gather_; }
  // Averages shards across replicas. Not the reduce stream: replicas are joined by other links than
  // the shard group, which can reduce the next unit meanwhile.
  Stream& replicas() const { return *replicas_; }
  // With offload: copies gradients to the host, and parameters from it. A link carries both
  // directions at once; and neither a gather nor a reduction waits for the copy of the next unit.
  Stream& to_host() const { return *to_host_; }
  Stream& from_host() const { return *from_host_; }
  // With offload to a file: what comes before from_host() and after to_host(); and what the
  // optimizer works on. A unit that forward wants is not behind those that are still updated, nor
  // is a read behind a write that it has nothing to do with.
  Stream& from_file() const { return *from_file_; }
  Stream& to_file() const { return *to_file_; }
  Stream& state_in() const { return *state_in_; }
  Stream& state_out() const { return *state_out_; }

  // Waits for all of them, and for the compute streams; forgets their errors.
  void drain();

 private:
  Backend& backend_;
  Backend *host_, *file_;
  std::unique_ptr<Stream> gather_;
  std::unique_ptr<Stream> reduce_;  // null: gather_ serves both
  std::unique_ptr<Stream> replicas_;
  std::unique_ptr<Stream> to_host_, from_host_;                         // null without offload
  std::unique_ptr<Stream> from_file_, to_file_, state_in_, state_out_;  // null without a file
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
  void allocate(Slot& slot);
  const Slot& slot(int buffer) const { return slots_[static_cast<size_t>(buffer)]; }

  Communicator& communicator_;
  Backend& backend_;
  size_t bytes_;
  MemoryCategory category_;
  Lifetime lifetime_;
  std::vector<Slot> slots_;
};

// [Note: offload] Masters and the optimizer's state lie on another backend, the host; its compute
// stream runs the optimizer. A unit's gradient is sent there as soon as it is reduced, on a stream
// of its own. After the last one, and the flags that say what was present, the host goes on: norm,
// then one unit after the other is updated, in the order in which forward wants them. An event says
// that a unit is updated; its values in the compute dtype are copied back after it, on another
// stream, and its gather waits for this copy, not for the other units. The decisions of a step (the
// clip coefficient, the loss scale, skip) are the device's, where collectives are.
//
// With `optimizer` the device has a shard in the compute dtype, which is copied once in a step.
// With `all` it has none: values are copied into the unit's buffer for each gather, and a
// gradient's shard is lent while it is reduced. Copies are made by the device: a GPU reaches the
// host's memory. A master in another dtype than the unit's is narrowed where it lies.
//
// With `nvme` a file has what the host has with `all`: masters, the optimizer's state, and
// gradients, which of a large model are too large for the host, too. The host has buffers, whatever
// the size of the model: two for what goes to the device or comes from it, in each direction, in
// pieces (file_transfers.h), and two for all that the optimizer needs of a unit
// (core/paged_tensors.h). The file is what counts: a unit's next gather reads what was written
// after its update.

class FileTransfers;

struct FsdpRuntime {
  Backend& backend;
  Mesh& mesh;
  CommStreams& streams;
  Backend* host = nullptr;                // of what is offloaded; null: nothing is
  Backend* file = nullptr;                // where it lies; null: in the host's memory
  FileTransfers* transfers = nullptr;     // with a file
  PageBuffers* pages = nullptr;           // with a file
  uint32_t updates = 0;                   // steps finished; keys the random numbers of rounding
  EventPtr parameters_updated = nullptr;  // the optimizer's last write to the masters; may be null
  std::optional<int> ranks_with_pass = {};  // see FullySharded::begin_micro_step
  Tensor overflow = {};  // (), i32: set by a rank's own gradients, until it is shared
};

}  // namespace fsdp::comm
