// What the parent of a job sees of the run in its directory: whether it lives, how far it is, and
// whether it could go on there; and whether the job hangs as a whole, so that none of its ranks can
// end it. Each look is a thread of its own, because a call of a storage that is away may not come
// back. Read next: parent.h. Not here: what a person sees (tools/report/run_status.h), ranks that
// hear nothing of each other (tools/launch/heartbeat.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include <sys/types.h>

#include "tools/launch/end_note.h"

namespace fsdp::tools {

class RunWatch {
 public:
  struct Look {
    std::string problem = {};  // why the run cannot go on there now; "": it can
    int64_t durable_step = 0;  // of the last checkpoint, as it was seen last
    double seen = 0;           // Unix time of the last step; 0: the start has finished none
    int64_t sign_of_life = 0;  // changes while the run's process runs; 0: there is none
  };

  explicit RunWatch(std::filesystem::path run_directory);
  ~RunWatch();  // waits a moment for a look that is on its way
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  // What a look finds within this time; else what one has found since the last call; else what was
  // known then, with the problem that nothing answers. `writes`: it also tries whether a file can
  // be written there, and no earlier look counts.
  Look look(std::chrono::milliseconds limit, bool writes = false);
  // A look has found a run that has done a step: where the directory is missing later, or has no
  // run in it, it has gone. A start that fails before may remove what it has made.
  bool expects_run() const { return expects_; }
  // For who looks at the directory later, together with what the last start has left of its end.
  void leave_end(EndNote note, std::chrono::milliseconds limit);

 private:
  void begin(std::function<Look()> work);
  bool returned_within(std::chrono::milliseconds limit) const;
  void take();  // what the look that has come back has found

  std::filesystem::path directory_;
  std::future<Look> call_;  // a look of a thread; not valid: nobody looks
  Look last_;
  bool expects_ = false;
};

// How long the job has shown no sign of life, in time in which the parent ran: a job that is
// suspended together with it is not silent.
class Silence {
 public:
  using Clock = std::chrono::steady_clock;

  // `job`: the process that the parent has started.
  Silence(pid_t job, std::chrono::seconds limit, Clock::time_point begin = Clock::now())
      : job_(job), limit_(limit), last_(begin) {}

  // Each second. Why the job is to be ended; "": it lives, or nobody knows. In its set-up a job
  // shows no sign of life but that its process is not stopped.
  std::string after(const RunWatch::Look& look, Clock::time_point now);

 private:
  pid_t job_;
  std::chrono::seconds limit_;
  Clock::time_point last_;
  std::chrono::duration<double> stopped_{0}, silent_{0};
  int64_t sign_ = -1;   // the last one; < 0: nobody has looked
  bool lives_ = false;  // this start has shown one
};

// Those that the process has started, and those below them, as far as /proc shows them.
std::vector<pid_t> processes_below(pid_t process);

}  // namespace fsdp::tools
