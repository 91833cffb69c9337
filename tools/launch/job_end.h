// How a job of several processes ends in an error: everywhere, soon, and with one report. Each
// process has one. It joins what finds errors (the rank itself, rank_watch.h, heartbeat.h) with
// what ends the job (the transport's abort, MPI_Abort, and what is left where MPI cannot be
// reached).
//
// [Note: who reports] Whoever finds the cause tells the other ranks, says it, and ends the job.
// What several ranks find at the same moment (a rank of their host is gone, rank 0 is silent) the
// lowest of them says. A rank that was told waits for the end that is coming; if it does not come,
// the network between may be gone: the rank says what it was told, ends the launcher's process of
// its host (mpirun, orted), which would wait for ever, and itself.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include "comm/mpi_transport.h"
#include "tools/launch/heartbeat.h"
#include "tools/launch/rank_watch.h"
#include "tools/launch/ring_dump.h"

namespace fsdp::tools {

// Sends SIGTERM to the launcher that started this process, unless it has ended by then, and SIGKILL
// when it has not ended `until_kill` later: Open MPI 5 waits for its daemon of a host that is gone.
// By a process that the launcher does not know. Nothing where the launcher is none that we know.
void end_launcher_after(std::chrono::milliseconds wait,
                        std::chrono::milliseconds until_kill = std::chrono::seconds(10));

// While ranks find each other. Open MPI's launcher hangs when a rank dies in the middle of its
// first words with it, and no rank may be left to say so. A process that outlives this one then
// ends the launcher, which has `patience` to end by itself. It cannot be a part of the thread of
// rank_watch.h: no thread outlives the kill -9 of its process (launcher_guard_test.cpp, "a launcher
// that outlives a rank of its start").
class LauncherGuard {
 public:
  explicit LauncherGuard(std::chrono::milliseconds patience = std::chrono::seconds(5));
  ~LauncherGuard();  // the ranks know of each other
  LauncherGuard(const LauncherGuard&) = delete;
  LauncherGuard& operator=(const LauncherGuard&) = delete;

 private:
  int pipe_ = -1;  // its end without a byte tells that this process is gone
  pid_t guard_ = -1;
};

// The other processes of the job. Collective.
std::vector<Peer> find_peers(comm::Communicator& world);

void print_line(const std::string& message);  // "fsdp: message"
void print_rings(const RingDump& rings);

class JobEnd {
 public:
  // Collective. `limit`: of the heartbeat; 0: none. `cards`: on which others may reach this
  // process.
  JobEnd(comm::MpiRuntime& runtime, RankWatch& watch, const RingDump& rings,
         std::vector<Peer> peers, std::chrono::milliseconds limit,
         const std::vector<NetworkCard>& cards);
  ~JobEnd() { watch_.stop(); }

  // This rank's own error. From any thread.
  [[noreturn]] void fail(const std::string& what);
  // The job is at its end, and no longer watched: from now on ranks go when they have finished.
  // Collective.
  void finish();

 private:
  void start_heartbeat();
  std::string where(int rank) const;
  const Peer& peer_of(int rank) const;
  void answer(WatchRequest request);
  void gone(const Peer& peer);
  void silent(const std::vector<int>& ranks);
  void told(const std::string& reason);
  bool claim() { return !ending_.exchange(true); }  // of the threads of this rank one ends the job
  [[noreturn]] void end(const std::string& line, std::chrono::milliseconds wait);

  comm::MpiRuntime& runtime_;
  RankWatch& watch_;
  const RingDump& rings_;
  std::vector<Peer> peers_;  // all others, by rank
  std::vector<Peer> near_;   // of them, on this host
  std::mutex mutex_;         // of gone_: each end of a process has a thread of its own
  std::set<int> gone_;       // ranks of this host
  std::optional<std::chrono::steady_clock::time_point> answered_;  // a request, the last time
  std::chrono::milliseconds limit_;
  std::atomic<bool> ending_ = false;
  std::vector<std::unique_ptr<char[]>> spare_;  // memory of the report; until it is needed
  Heartbeat heartbeat_;
};

}  // namespace fsdp::tools
