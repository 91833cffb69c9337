// Whether a job hangs as a whole, so that none of its ranks can end it. Read next: parent.h. Not
// here: ranks that hear nothing of each other (tools/launch/heartbeat.h).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <sys/types.h>

#include "tools/jobs/run_watch.h"

namespace fsdp::tools {

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
