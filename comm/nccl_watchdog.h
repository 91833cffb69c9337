// The thread that looks after the NCCL communicators of a rank: marks their collectives in the ring
// as begun and done, and gives up when NCCL reports an error or a collective that has begun does
// not end in time. NCCL itself would wait for a dead peer for ever.
//
// A watched collective:  issued -> begun (event before it is ready) -> done (event after it is)
//                                    | longer than the timeout, an error of the communicator, or
//                                    | the job was given up
//                                    +-> failed(reason), then ncclCommAbort of all communicators
//
// Aborts are one group of calls: an abort waits for the collectives of its communicator, which may
// be queued behind a collective of another one, and for peers to abort theirs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/collective_ring.h"
#include "comm/nccl_library.h"
#include "comm/nccl_transport.h"
#include "comm/patience.h"
#include "core/backend.h"
#include "core/machine_error.h"

namespace fsdp::comm {

// "what failed: NCCL's words", with what helps where they tell of an allocation.
std::string told_by_nccl(const nccl::Library& library, nccl::Result result, nccl::Comm comm);

class NcclWatchdog {
 public:
  // `options`: the timeout, and the functions that are called.
  NcclWatchdog(const nccl::Library& library, const NcclOptions& options);
  // Communicators that an error has left here are aborted.
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  void add(nccl::Comm comm, std::string name);
  // False when the watchdog has aborted it: nothing is left to destroy.
  bool remove(nccl::Comm comm);

  struct Call {
    std::shared_ptr<CollectiveRing> ring;
    int64_t sequence = 0;
    EventPtr begun;  // recorded before it; null once it was seen
    EventPtr done;   // recorded after it
  };
  void watch(Call call);
  void check(const std::string& name) const;  // throws MachineError(reason) once it has given up
  // Calls `f`, which uses a communicator, under a lock: it is not aborted meanwhile. `f` must not
  // wait. Throws as check() does.
  template <typename F>
  auto call(std::string_view name, F f) const {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) throw MachineError(fmt::format("[nccl] {}: {}", name, reason_));
    return f();
  }

 private:
  struct Watched {
    Call call;
    std::optional<Patience> patience = {};  // since it was seen to have begun
  };
  struct Group {
    nccl::Comm comm;
    std::string name;
  };

  void run();
  std::optional<std::string> look();  // the reason to give up
  std::optional<std::string> look_at(Watched& watched);
  std::optional<std::string> look_at(const Group& group) const;
  void give_up(const std::string& reason);

  const nccl::Library& library_;
  const NcclOptions options_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  bool ending_ = false;
  std::string reason_;
  std::vector<Group> groups_;
  std::deque<Watched> calls_;  // not yet done
  std::thread thread_;         // last: starts when the rest is there
};

}  // namespace fsdp::comm
