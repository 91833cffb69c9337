// Ends mpirun, or its daemon of this host, where it would wait for ever for ranks that are gone.
// Read next: launcher_guard.cpp. Not here: ranks that end (job_end.h).
#pragma once

#include <chrono>

#include <sys/types.h>

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

}  // namespace fsdp::tools
