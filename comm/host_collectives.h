// Collectives on host memory, written once for all transports whose ranks see common memory, and
// the communicator that puts them on streams. The calls follow the diagram below.
//
//   HostCommunicator::do_all_gather (host thread)      where is the tensor? -> HostCall
//     `- Backend::host_task (stream's worker)          HostEngine::run(call)
//          |- DirectEngine   peers read each other     local threads, processes of one host
//          `- MpiEngine      MPI_Allgather, ...        comm/mpi_engine.h
//
// [Note: who reads what] all_gather: peers read slot r of rank r's buffer, rank r writes the
// others. reduce_scatter: rank r reads slot r of every buffer and writes its output; nobody else
// reads slot r of rank r's own buffer, so the output may be there. Hence no copy is needed on
// either side; the meeting on entry says "all buffers are ready", the one on exit "nobody reads
// mine any more".
//
// [Note: memory that the host cannot reach] A buffer of a GPU is copied to staging memory before
// the call and back after it, all in the order of the stream: what the call reads goes there, what
// it writes comes back. A communicator needs one block of staging memory, because its collectives
// run one after the other.
//
// [Note: ranks that share a GPU] Threads of one process share the context of a GPU, and some calls
// of the driver wait for all streams in it: pinned memory that is taken or given back, the first
// start of a kernel, a plan that is made. Were one rank's part of a collective in its stream and
// the other rank in such a call before it has issued its own part, both would wait for ever. So
// their hosts meet before each collective of a GPU and again when all have issued it, and make no
// such call between. So the hosts must issue collectives in one order, also those of different
// communicators.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "comm/host_group.h"

namespace fsdp::comm {

// Memory of every rank of a group as this process sees it.
struct PeerWindow {
  uint64_t id = 0;               // the same on all ranks; 0: none
  std::vector<uintptr_t> bases;  // by rank
  std::shared_ptr<void> mapped;  // keeps them mapped
};

struct HostCall {
  Collective collective = Collective::kAllGather;
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kF32;
  int root = 0;
  int64_t numel = 0;                                   // of data
  std::byte* data = nullptr;                           // the buffer; the input of a reduce_scatter
  std::byte* output = nullptr;                         // of a reduce_scatter
  std::shared_ptr<const PeerWindow> window = nullptr;  // where peers find `data`; null: they cannot
  uint64_t offset = 0;                                 // of data in it, bytes
  std::string unit = {};                               // what it belongs to, for errors
  // Of a sum_in_order, which is a reduce_scatter with these. terms 0: another call.
  int terms = 0, columns = 1;
  const std::byte* start = nullptr;  // null: none

  Announcement announcement() const;
  DType output_dtype() const { return terms > 0 ? accumulation_dtype(dtype) : dtype; }
  // The slot of a reduce_scatter that is `rank`'s.
  int slot_of(int rank, int ranks) const {
    return terms > 0 ? slot_in_order(rank, ranks, columns) : rank;
  }
  // The sum of elements [first, first + count) of this rank's slot. `sources`: by rank.
  void reduce(std::vector<const std::byte*> sources, std::byte* output_of_slot, int64_t first,
              int64_t count) const;
};

// The part of a buffer that belongs to a rank; the last ranks may have less, or nothing.
struct Slots {
  int64_t numel;
  int64_t per_rank;

  Slots(int64_t numel_, int ranks) : numel(numel_), per_rank((numel_ + ranks - 1) / ranks) {}
  int64_t begin(int rank) const { return std::min(rank * per_rank, numel); }
  int64_t count(int rank) const { return begin(rank + 1) - begin(rank); }
};

// Runs collectives of one group, one after the other, on the thread of a stream.
class HostEngine {
 public:
  virtual ~HostEngine() = default;
  virtual void run(const HostCall& call) = 0;
  virtual size_t staging_bytes() const = 0;  // memory it holds to pass data through
};

// Where the group passes data of buffers that peers cannot read: two halves per rank, so that one
// is filled while the other is read.
struct Staging {
  std::shared_ptr<const PeerWindow> window;  // null: every buffer can be read by peers
  size_t half_bytes = 0;
};

class DirectEngine final : public HostEngine {
 public:
  DirectEngine(HostGroup group, Staging staging);
  void run(const HostCall& call) override;
  size_t staging_bytes() const override { return staging_.window ? 2 * staging_.half_bytes : 0; }

 private:
  using Peers = std::vector<const std::byte*>;  // the buffers by rank

  void run_direct(const HostCall& call, const Peers& peers);
  void gather_direct(const HostCall& call, const Peers& peers);
  void reduce_direct(const HostCall& call, const Peers& peers, std::byte* output);
  void run_staged(const HostCall& call);
  void gather_staged(const HostCall& call);
  void reduce_staged(const HostCall& call, std::byte* output);
  void broadcast_staged(const HostCall& call);
  std::byte* half(int rank) const;  // of the current turn
  void meet(const HostCall& call) { group_.meet(name_of(call.collective)); }

  HostGroup group_;
  Staging staging_;
  uint64_t turns_ = 0;
};

// A communicator whose collectives are host tasks of an engine.
class HostCommunicator : public Communicator {
 public:
  using Communicator::Communicator;
  ~HostCommunicator() override;

 protected:
  void use(std::shared_ptr<HostEngine> engine) { engine_ = std::move(engine); }
  int job_rank() const { return ring().members()[static_cast<size_t>(rank())]; }  // in errors
  // Tells peers where the buffer is; leaves window null when they cannot reach it.
  virtual void locate(const Tensor& buffer, HostCall& call) = 0;
  // See [Note: ranks that share a GPU]. Only ranks that are threads of one process need it.
  virtual void meet_hosts(Collective) {}

  void do_all_gather(Stream& stream, const Tensor& buffer) override;
  void do_reduce_scatter(Stream& stream, const Tensor& input, const Tensor& output,
                         ReduceOp op) override;
  void do_sum_in_order(Stream& stream, const Tensor& input, const Tensor& output,
                       const OrderedSum& sum) override;
  void do_all_reduce(Stream& stream, const Tensor& buffer, ReduceOp op) override;
  void do_broadcast(Stream& stream, const Tensor& buffer, int root) override;

 private:
  void enqueue(Stream& stream, const Tensor& buffer, HostCall call);
  void put_on(Stream& stream, const Tensor& buffer, HostCall call, std::shared_ptr<void> held);
  void put_staged_on(Stream& stream, const Tensor& buffer, HostCall call);

  std::shared_ptr<HostEngine> engine_;  // shared with the tasks; null in a group of one
  bool staging_counted_ = false;
  std::shared_ptr<std::byte> staged_;  // see [Note: memory that the host cannot reach]
  size_t staged_bytes_ = 0;
  EventPtr staged_until_;  // the last copy from it
};

// Ordinary memory of a backend, for transports and cases that need nothing better.
class BackendBuffer final : public CommBuffer {
 public:
  BackendBuffer(Backend& backend, size_t bytes, MemoryCategory category)
      : storage_(backend, bytes, category) {}
  void* data() const override { return storage_.data(); }
  size_t bytes() const override { return storage_.bytes(); }

 private:
  Storage storage_;
};

}  // namespace fsdp::comm
