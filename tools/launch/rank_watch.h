// A thread that notices what a rank cannot notice while it waits or computes: somebody asks with
// SIGUSR2 where the job is, or another process of this host has ended. Not here: what to do then,
// which the caller decides (tools/launch/launch.cpp).
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include <sys/types.h>

namespace fsdp::tools {

enum class WatchRequest : int {
  kPerson = 0,    // a person, mpirun or a batch system sent SIGUSR2
  kWriteOwn = 1,  // another rank collects all rings: write this rank's
  kCollect = 2,   // another rank passes on a person's request: collect all rings
};
void send_request(pid_t process, WatchRequest request);

class RankWatch {
 public:
  // From now on only the watch receives SIGUSR2. Call it before the process has other threads.
  static void block_signal();

  struct Actions {
    std::function<void(WatchRequest)> asked;
    std::function<void(size_t process)> gone;  // by index; called once, soon after the end
  };
  // Calls the actions on its thread. A process that cannot be watched is left out.
  RankWatch(const std::vector<pid_t>& processes, Actions actions);
  ~RankWatch();  // waits for an action that is running
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

 private:
  void watch();
  bool stopped_within(int milliseconds) const;
  void read_signal();

  Actions actions_;
  int stop_ = -1;               // eventfd
  int signal_ = -1;             // signalfd
  std::vector<int> processes_;  // pidfds; -1: not watched
  std::thread thread_;
};

}  // namespace fsdp::tools
