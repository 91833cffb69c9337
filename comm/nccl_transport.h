// Collectives between GPUs over NCCL. Ranks are those of another communicator (MPI processes, one
// GPU each), which carries the unique id and control messages. Where the library is not installed
// nccl_missing() says so. Not here: which GPU is whose (tools/launch/backend_choice.h).
//
// Unlike the transports on host memory, NCCL chooses the order of a sum by the number of ranks,
// their places and the size of the buffer: the same on every run of a job, but not that of the
// ranks. An average is a sum of terms that were divided before (nccl.h: ncclAvg).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/host_group.h"

namespace fsdp::comm {

struct NcclOptions {
  std::chrono::milliseconds timeout = kDefaultTimeout;  // of a collective that has begun
  // What allocate() makes is memory that peers reach directly. It does not come and go without the
  // host: NCCL frees none in the order of a stream.
  bool register_buffers = true;
  int max_ctas = 0;  // blocks, so multiprocessors, that a collective may take; 0: NCCL chooses
  // Called once, by the watchdog's thread, when a collective failed or did not come to its end,
  // when the job was given up, or when an error has left communicators without an owner. The job
  // cannot go on: communicators are aborted next and later calls throw the reason. May be null.
  std::function<void(const std::string& reason)> failed = nullptr;
  // Why the job was given up; empty: it was not. For ranks that are threads. The watchdog asks
  // every few milliseconds, and then aborts this rank's communicators: ncclCommAbort waits for the
  // peers' aborts. Null: ranks are processes, whose end closes their peers' connections: whoever
  // catches an error of such a rank must end the process.
  std::function<std::string()> given_up = nullptr;
};

// Why there is no NCCL here; empty: there is.
std::string nccl_missing();
// Settings that NCCL reads when it is first called. Before that, and before the first thread.
// Several ranks may use one GPU by an experimental switch of NCCL 2.30.
void set_up_nccl_environment(bool share_devices);
// Error when the library is too old for that.
void check_shared_devices();

// The world of `control`, which must outlive it. This thread's current device is the rank's.
// Collective. Error when not all ranks come within the timeout.
std::unique_ptr<Communicator> make_nccl_world(Communicator& control, const NcclOptions& options);

}  // namespace fsdp::comm
