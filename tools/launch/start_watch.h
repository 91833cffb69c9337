// Until the processes of a job can talk to each other (MPI_Init, which waits for all of them and
// for ever): a thread that ends the job when a process of this host is stopped, or when it takes
// too long. Later: heartbeat.h.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

namespace fsdp::tools {

class StartWatch {
 public:
  struct Limits {
    std::chrono::milliseconds silence{0};  // of a stopped process; 0: not looked at
    std::chrono::milliseconds start{0};    // of all
    // How long a signal may wait (SignalsWait) for ranks that perhaps never come.
    std::chrono::milliseconds signal{3000};
  };
  // `failed` is called once, on a thread of its own.
  StartWatch(Limits limits, std::function<void(const std::string& reason)> failed);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void watch(Limits limits, const std::function<void(const std::string& reason)>& failed);

  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::thread thread_;
};

// ---- for tests ----
// Processes of the same program and parent, without this one: the other ranks of this host.
std::vector<pid_t> sibling_processes();

}  // namespace fsdp::tools
