// Until the processes of a job can talk to each other (MPI_Init, which waits for all of them and
// for ever): ends the job when a process of this host is stopped, or when it takes too long. On the
// thread of rank_watch.h. Later: heartbeat.h.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "comm/patience.h"
#include "tools/launch/heartbeat.h"
#include "tools/launch/rank_watch.h"

namespace fsdp::tools {

class StartWatch {
 public:
  struct Limits {
    std::chrono::milliseconds silence{0};  // of a stopped process; 0: not looked at
    std::chrono::milliseconds start{0};    // of all
    // How long a signal may wait (SignalsWait) for ranks that perhaps never come.
    std::chrono::milliseconds signal{3000};
  };
  using Failed = std::function<void(const std::string& reason)>;
  // `failed` is called once, on the thread of the watch.
  StartWatch(RankWatch& watch, Limits limits, Failed failed);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void look();
  std::string reason_to_end();  // "": none

  RankWatch& watch_;
  Limits limits_;
  Failed failed_;  // null: it was called
  comm::Patience patience_;
  SilenceWatch silence_;
  pid_t stopped_ = 0;                                           // 0: none is
  std::optional<std::chrono::steady_clock::time_point> asked_;  // since when a signal waits
  int timer_ = -1;
};

// ---- for tests ----
// Processes of the same program and parent, without this one: the other ranks of this host.
std::vector<pid_t> sibling_processes();

}  // namespace fsdp::tools
