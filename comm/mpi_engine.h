// Collectives through MPI's own calls: for groups that span hosts, and where shared memory cannot
// be had. Sums are still formed by us, in rank order, so the bits are those of the shared-memory
// path.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/host_collectives.h"
#include "comm/mpi_calls.h"

namespace fsdp::comm {

class MpiEngine final : public HostEngine {
 public:
  struct Options {
    std::string name;                      // of the communicator
    size_t piece_bytes = size_t{1} << 20;  // how much of each slot is in flight at a time
    std::chrono::milliseconds timeout = kDefaultTimeout;
    std::shared_ptr<const AbortList> abort_list;
    std::shared_ptr<const WorkProgress> progress;
  };
  MpiEngine(std::shared_ptr<MpiGroup> group, Options options);
  void run(const HostCall& call) override;
  size_t staging_bytes() const override;

 private:
  void rendezvous(const HostCall& call);
  void gather(const HostCall& call);
  void reduce_scatter(const HostCall& call);
  void exchange_pieces(const HostCall& call, int64_t done, int64_t bytes);
  void all_reduce(const HostCall& call);
  void broadcast(const HostCall& call);
  int64_t piece_elements(const HostCall& call) const;
  std::byte* scratch(int half);  // size() pieces

  std::shared_ptr<MpiGroup> group_;
  Options options_;
  int rank_;
  int size_;
  std::vector<std::byte> scratch_;  // made by the first collective that needs it
};

}  // namespace fsdp::comm
