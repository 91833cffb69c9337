// Ranks as MPI processes. Groups whose ranks share a host read each other's memory directly
// (comm/shared_window.h); the others, and those where that is refused, go through MPI's own calls.
// Where the build has no MPI, mpi_absent.cpp stands in and available() says so.
// Not here: how to tell that a launcher started this process (tools).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/host_group.h"

namespace fsdp::comm {

struct HostMemoryOptions {
  bool shared_memory = true;      // ranks of one host read each other's memory
  size_t limit_bytes = SIZE_MAX;  // of shared memory that this process makes
  // Of a piece of data on its way. A rank has two per communicator, which should stay in its cache.
  size_t staging_bytes = size_t{256} << 10;
  // How long a rank waits for the others: without progress, and for one call of the file system.
  std::chrono::milliseconds timeout = kDefaultTimeout;
  std::chrono::seconds storage_timeout = WorkProgress::kStorageLimit;
};

// MPI from its initialisation to its end. Make one first thing in main, and destroy everything that
// communicates before it. Error unless MPI lets several threads call it at once.
class MpiRuntime {
 public:
  static bool available();
  static bool begun();  // MPI_Init has ended. From any thread
  // Whether it can connect processes that srun started without PMIx; true where it cannot be told.
  static bool reaches_slurm();

  explicit MpiRuntime(const HostMemoryOptions& options = {});
  ~MpiRuntime();  // ends MPI if this object began it; not while an exception is on its way
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  Communicator& world();
  int local_rank() const;  // among the ranks of this host
  int local_size() const;
  int first_of_host() const;  // the world's rank of the host's rank 0
  const std::string& host_name() const;
  // Ends all ranks of the job at once. Tell world().abort(reason) before: peers that wait then
  // report the reason.
  [[noreturn]] void abort(int code);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fsdp::comm
