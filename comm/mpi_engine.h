// Collectives through MPI's own calls: for groups that span hosts, and where shared memory cannot be
// had. Sums are still formed by us, in rank order, so the bits are those of the shared-memory path.
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
  // `piece_bytes`: how much of each slot is in flight at a time.
  MpiEngine(std::shared_ptr<MpiGroup> group, std::string name, size_t piece_bytes,
            std::chrono::milliseconds timeout);
  void run(const HostCall& call) override;
  size_t staging_bytes() const override;

 private:
  void rendezvous(const HostCall& call);
  void gather(const HostCall& call);
  void reduce_scatter(const HostCall& call);
  void all_reduce(const HostCall& call);
  void broadcast(const HostCall& call);
  int64_t piece_elements(const HostCall& call) const;
  std::byte* scratch(int half);  // size() pieces

  std::shared_ptr<MpiGroup> group_;
  std::string name_;
  int rank_;
  int size_;
  size_t piece_bytes_;
  std::chrono::milliseconds timeout_;
  std::vector<std::byte> scratch_;  // made by the first collective that needs it
};

}  // namespace fsdp::comm
