// The one thread of a process that notices what a rank cannot notice while it waits or computes:
// somebody asks with SIGUSR2 where the job is, another process of this host has ended, a datagram
// has come, a timer has run out. It waits for all of them at once. Who else watches adds to it:
// heartbeat.h. Not here: what to do then, which the caller decides (job_end.h).
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <mutex>
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
  using Action = std::function<void()>;
  // From now on only the watch receives SIGUSR2. Call it before the process has other threads.
  static void block_signal();

  RankWatch();
  ~RankWatch() { stop(); }
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;
  // Nothing is watched any more. Waits for actions that are running.
  void stop();

  // Both call their actions apart(); one request after the other.
  void on_request(std::function<void(WatchRequest)> asked);
  void on_end(pid_t process, Action gone);  // once, soon after; not where it cannot be watched

  // Calls `ready` on the watch's thread while `descriptor` can be read. `ready` may not wait, since
  // a beat would be late, and may not add or remove. The watch closes the descriptor.
  void add(int descriptor, Action ready, bool once = false);
  int every(std::chrono::nanoseconds period, Action action);  // the timer: for remove()
  void remove(int descriptor);  // its action does not run any more when this returns
  // For actions on the watch's thread: the rest, which takes longer, on a thread of its own. Where
  // none can be started, for want of memory, on this one.
  void apart(Action work);

 private:
  void watch();
  bool stopped_within(int milliseconds) const;

  int stop_ = -1;                         // eventfd
  int poll_ = -1;                         // epoll: descriptors may be added while the thread waits
  std::mutex mutex_;                      // of the actions, while they run too
  std::map<int, Action> ready_;           // by descriptor
  std::mutex asking_;                     // while a request is answered
  std::vector<std::future<void>> apart_;  // of the watch's thread; threads that have not ended
  std::thread thread_;
};

}  // namespace fsdp::tools
