// A communicator over MPI: control messages through MPI, collectives through shared memory where
// the group lies on one host, else through MPI. Read next: comm/mpi_transport.h for who makes the
// first.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/host_collectives.h"
#include "comm/mpi_calls.h"
#include "comm/mpi_transport.h"
#include "comm/shared_window.h"

namespace fsdp::comm {

// What all communicators of this process share.
struct MpiJob {
  explicit MpiJob(const HostMemoryOptions& given) : options(given) {}

  HostMemoryOptions options;
  std::shared_ptr<CollectiveRings> rings =
      std::make_shared<CollectiveRings>(std::make_shared<WorkProgress>(options.storage_timeout));
  AbortList abort_list;
  std::atomic<size_t> shared_bytes{0};  // made by this process, staging included
  std::string notice;  // the first reason why some collective is slower than it could be
};

class MpiCommunicator final : public HostCommunicator {
 public:
  // Collective over `control`.
  MpiCommunicator(std::shared_ptr<MpiJob> job, std::shared_ptr<MpiGroup> control,
                  const std::string& name);

  std::shared_ptr<CommBuffer> allocate(Backend& backend, size_t bytes,
                                       MemoryCategory category) override;
  std::unique_ptr<Communicator> split(const SplitRule& rule, const std::string& name) override;
  bool abort(const std::string& reason) override;
  std::string notice() const override { return job_->notice; }

 private:
  struct Registered {
    uintptr_t begin;
    uintptr_t end;
    std::weak_ptr<const PeerWindow> window;
  };

  std::vector<std::string> do_exchange(const std::string& mine) override;
  void locate(const Tensor& buffer, HostCall& call) override;
  // True when the group runs on shared memory.
  bool use_shared_memory();
  void use_mpi();
  SharedWindow::Result make_window(size_t bytes, PeerAccess access);
  std::shared_ptr<const PeerWindow> register_window(std::shared_ptr<const SharedWindow> window);
  void check_not_aborted() const;
  void note(std::string reason);

  std::shared_ptr<MpiJob> job_;
  std::shared_ptr<MpiGroup> control_;   // host thread only; collectives have their own
  std::optional<HostGroup> group_;      // absent when the group does not run on shared memory
  std::vector<Registered> registered_;  // register_window() drops those that are gone
  uint64_t windows_ = 0;                // made or refused so far: the same on all ranks
};

}  // namespace fsdp::comm
