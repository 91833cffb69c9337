// Ranks as threads of one process: for tests, for studying, and where there is no MPI.
// Same algorithms and same bits as processes of one host (comm/host_collectives.h).
#pragma once

#include <functional>

#include "comm/communicator.h"
#include "comm/host_group.h"

namespace fsdp::comm {

struct LocalOptions {
  // Of a rank that waits for the others: without progress, and for one call of the file system.
  std::chrono::milliseconds timeout = kDefaultTimeout;
  std::chrono::seconds storage_timeout = WorkProgress::kStorageLimit;
};

// Runs `body` once per rank, each on its own thread with its world communicator, and returns when
// all have ended. The first rank that throws aborts the others; its message is rethrown as Error
// "rank 2: ...". The communicator must not be used after `body` returned.
void run_local_ranks(int ranks, const std::function<void(Communicator& world)>& body,
                     const LocalOptions& options = {});

}  // namespace fsdp::comm
