// A communicator over NCCL: collectives on the GPU's streams, control messages through another
// communicator of the same ranks. Read next: comm/nccl_transport.h for who makes the first.
//
// [Note: nonblocking NCCL] Communicators are nonblocking: a call may return before NCCL is done
// with it, and settle() asks until it is. Only so can a rank give up on peers that never come, and
// can the watchdog abort what hangs.
#pragma once

#include <memory>
#include <string>

#include "comm/nccl_library.h"
#include "comm/nccl_transport.h"
#include "comm/nccl_watchdog.h"

namespace fsdp::comm {

// What all NCCL communicators of a rank share.
struct NcclJob {
  explicit NcclJob(const NcclOptions& o)
      : options(o), library(nccl::library()), watchdog(library, o.timeout, o.failed) {}

  // Waits until NCCL is done with a call on `comm` that returned `result`; Error when it failed.
  void settle(nccl::Comm comm, nccl::Result result, std::string_view what) const;
  // The communicator that begin(&comm) asks for. `parent`: that it is split from, or null.
  template <typename F>
  nccl::Comm make(nccl::Comm parent, std::string_view what, F begin) const;

  const NcclOptions options;
  const nccl::Library& library;
  NcclWatchdog watchdog;
  std::string notice;
};

// NCCL's communicator, which goes with its last owner.
class NcclGroup {
 public:
  NcclGroup(std::shared_ptr<NcclJob> job, nccl::Comm comm, const std::string& name);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  nccl::Comm comm() const { return comm_; }
  NcclJob& job() const { return *job_; }
  EventPtr last;  // the end of the last collective; null: none

 private:
  std::shared_ptr<NcclJob> job_;
  nccl::Comm comm_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclJob> job, std::unique_ptr<Communicator> control,
                   nccl::Comm comm, const std::string& name);

  std::shared_ptr<CommBuffer> allocate(Backend& backend, size_t bytes,
                                       MemoryCategory category) override;
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override;
  bool abort(const std::string& reason) override { return control_->abort(reason); }
  bool sums_in_rank_order() const override { return false; }
  std::string notice() const override { return job_->notice; }

 private:
  std::vector<std::string> do_exchange(const std::string& mine) override;
  void do_all_gather(Stream& stream, const Tensor& buffer) override;
  void do_reduce_scatter(Stream& stream, const Tensor& input, const Tensor& output,
                         ReduceOp op) override;
  void do_all_reduce(Stream& stream, const Tensor& buffer, ReduceOp op) override;
  void do_broadcast(Stream& stream, const Tensor& buffer, int root) override;
  // Puts NCCL's call on the stream, watched: call(native stream).
  template <typename F>
  void run(Stream& stream, std::string_view what, F call);

  std::shared_ptr<NcclJob> job_;
  std::unique_ptr<Communicator> control_;
  std::shared_ptr<NcclGroup> group_;
};

}  // namespace fsdp::comm
