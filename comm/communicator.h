// What sharding asks of a transport: collectives over a group of ranks, in place, on a stream.
// Every rank of the group calls the same collectives in the same order with the same sizes.
// Transports: comm/local_transport.h (ranks as threads), comm/mpi_transport.h (processes),
// comm/nccl_transport.h (GPUs), comm/meta_transport.h (one rank of any number, without the others).
// Not here: what is gathered when (comm/fsdp).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/collective_ring.h"
#include "core/tensor.h"

namespace fsdp::comm {

// kAverage divides the finished sum by the number of ranks, after the sum. Sums run in rank order
// 0, 1, ..., size-1 in the accumulation dtype and are rounded once: the same bits on every run.
// (NCCL does both its own way: comm/nccl_transport.h.)
enum class ReduceOp : uint8_t { kSum, kAverage, kMax };

// One link of a chain of sums: output = start + input of rank 0 + input of rank 1 + ..., added one
// after the other in the accumulation dtype of the input, which is the output's: no rounding
// depends on where one link ends and the next begins.
struct OrderedSum {
  Tensor start = {};  // as output, perhaps output itself; undefined: the sum begins with rank 0
  int terms = 0;      // ranks 0, ..., terms - 1 have one; what the others have is not read
  // Ranks of a row of the mesh (comm/mesh.h). Slots of the input are dealt down its columns: rank r
  // gets slot r % columns * rows + r / columns. With one row that is slot r, with one column too.
  int columns = 1;
};

// Which slot rank `rank` gets; see OrderedSum::columns.
int slot_in_order(int rank, int ranks, int columns);

enum class Collective : uint8_t { kAllGather, kReduceScatter, kAllReduce, kBroadcast };
constexpr size_t kCollectives = 4;
std::string_view name_of(Collective collective);

struct CollectiveCount {
  int64_t calls = 0;
  int64_t bytes = 0;  // size of the full (unsharded) buffer, summed over calls
};

// Where a rank goes in a split: ranks of one color form a group, ordered by (key, rank).
struct SplitPlace {
  int color = 0;
  int key = 0;
  bool operator==(const SplitPlace&) const = default;
};
using SplitRule = std::function<SplitPlace(int rank)>;

// Memory that the ranks of one communicator can reach directly, where the transport has such a
// thing (shared memory, registered NCCL buffers); plain backend memory elsewhere.
class CommBuffer {
 public:
  virtual ~CommBuffer() = default;
  virtual void* data() const = 0;
  virtual size_t bytes() const = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }  // in traces and errors: "gather", "reduce"

  // Each enqueues on `stream` and returns an event that completes when the collective has. In a
  // group of one rank only reduce_scatter enqueues something, a copy, if any; such calls are not
  // counted.
  // buffer: size() equal slots; this rank's slot is filled before, all are after.
  EventPtr all_gather(Stream& stream, Tensor buffer);
  // input: size() equal slots; output: one slot = the reduction of slot rank() over the ranks; it
  // may be that slot of input. Other slots of input are left undefined.
  EventPtr reduce_scatter(Stream& stream, Tensor input, Tensor output, ReduceOp op);
  // A reduce_scatter whose sum goes on from an earlier one, and of some of the ranks; output: one
  // slot, in the accumulation dtype of the input. Only where sums_in_rank_order().
  EventPtr sum_in_order(Stream& stream, Tensor input, Tensor output, const OrderedSum& sum);
  EventPtr all_reduce(Stream& stream, Tensor buffer, ReduceOp op);
  EventPtr broadcast(Stream& stream, Tensor buffer, int root);

  // Host side, blocking, for small control messages; in the same order on all ranks.
  std::vector<std::string> exchange(const std::string& mine);  // by rank
  void barrier() { exchange(""); }

  // Collective: every rank asks for the same number of bytes. Counted in `category`.
  virtual std::shared_ptr<CommBuffer> allocate(Backend& backend, size_t bytes,
                                               MemoryCategory category) = 0;
  // Collective. `rule` says for every rank of this group where it goes, and says the same on every
  // rank: a transport without other ranks (comm/meta_transport.h) cannot ask them.
  virtual std::unique_ptr<Communicator> split(const SplitRule& rule, const std::string& name) = 0;
  std::unique_ptr<Communicator> duplicate(const std::string& name) {
    return split([](int rank) { return SplitPlace{.color = 0, .key = rank}; }, name);
  }
  // Tells the other ranks that this one gives up; their pending collectives throw Error(reason).
  // False when this rank knows that another rank gave up before.
  virtual bool abort(const std::string& reason) = 0;
  // Why a rank, also this one, has given up; empty: none has, as far as this rank can see without
  // waiting. From any thread.
  virtual std::string aborted() const { return {}; }
  // True when sums are formed as ReduceOp says. Otherwise their bits may depend on how ranks are
  // grouped.
  virtual bool sums_in_rank_order() const { return true; }
  // One line when the transport is slower than it could be ("shared memory is not used: ..."), else
  // empty. For the program to print: libraries do not.
  virtual std::string notice() const { return {}; }

  const CollectiveCount& count(Collective collective) const {
    return counts_[static_cast<size_t>(collective)];
  }
  const CollectiveRing& ring() const { return *ring_; }                     // of this communicator
  const std::shared_ptr<CollectiveRings>& rings() const { return rings_; }  // of this rank

 protected:
  // `members`: the group's ranks as ranks of the job. `rings`: one object for all communicators of
  // a rank.
  Communicator(int rank, std::string name, const std::vector<int>& members,
               std::shared_ptr<CollectiveRings> rings)
      : rank_(rank),
        size_(static_cast<int>(members.size())),
        name_(std::move(name)),
        rings_(std::move(rings)),
        ring_(rings_->add(name_, members)) {}
  // What do_* passes to the work it enqueues, which reports its start and its end to the ring.
  struct IssuedCall {
    std::shared_ptr<CollectiveRing> ring;
    int64_t sequence = 0;
  };
  IssuedCall issued_call() const { return {ring_, last_call_}; }
  // This rank's group of a split. Error when a color is negative: MPI takes none.
  struct SplitGroup {
    int color = 0;
    int rank = 0;              // of this rank in it
    std::vector<int> members;  // as ranks of the job
  };
  SplitGroup group_of_split(const SplitRule& rule) const;

  virtual std::vector<std::string> do_exchange(const std::string& mine) = 0;
  virtual void do_all_gather(Stream& stream, const Tensor& buffer) = 0;
  virtual void do_reduce_scatter(Stream& stream, const Tensor& input, const Tensor& output,
                                 ReduceOp op) = 0;
  // Transports that leave this as it is do not sum in rank order.
  virtual void do_sum_in_order(Stream& stream, const Tensor& input, const Tensor& output,
                               const OrderedSum& sum);
  virtual void do_all_reduce(Stream& stream, const Tensor& buffer, ReduceOp op) = 0;
  virtual void do_broadcast(Stream& stream, const Tensor& buffer, int root) = 0;

 private:
  bool nothing_to_do(const Tensor& buffer) const;
  void check_ordered(const Tensor& input, const Tensor& output, const OrderedSum& sum) const;
  void count_call(Collective collective, const Tensor& buffer);
  // Collectives run in the order in which the host issues them, also across streams.
  void order_after_last(Stream& stream);
  EventPtr finish(Stream& stream, bool enqueued);

  int rank_;
  int size_;
  std::string name_;
  std::array<CollectiveCount, kCollectives> counts_{};
  Stream* last_stream_ = nullptr;  // of the last collective; compared, never used
  EventPtr last_;
  std::shared_ptr<CollectiveRings> rings_;
  std::shared_ptr<CollectiveRing> ring_;
  int64_t last_call_ = 0;  // of the ring
};

}  // namespace fsdp::comm
