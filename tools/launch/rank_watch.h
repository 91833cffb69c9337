// A thread of its own for what a rank that waits or computes would not notice: somebody asks with
// SIGUSR1 where the job is, or another process of this host is gone. Signals and process numbers
// only; what is to be done comes from outside (tools/launch/launch.cpp).
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include <sys/types.h>

namespace fsdp::tools {

enum class WatchRequest : int {
  kPerson = 0,    // SIGUSR1 by kill, mpirun or a batch system
  kWriteOwn = 1,  // a peer collects: write your own
  kCollect = 2,   // a peer passes on a person's request
};
void send_request(pid_t process, WatchRequest request);

class RankWatch {
 public:
  // From now on SIGUSR1 only comes to the watch: call before the process has other threads.
  static void block_signal();

  struct Actions {
    std::function<void(WatchRequest)> asked;
    std::function<void(size_t process)> gone;  // index; called once, some time after the end
  };
  // Calls the actions on its thread. Processes that cannot be watched are not.
  RankWatch(const std::vector<pid_t>& processes, Actions actions);
  ~RankWatch();  // waits for an action under way
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
