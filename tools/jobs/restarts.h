// Whether a job that has ended is started again, and after what pause. Read next: parent.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace fsdp::tools {

struct RestartLimits {
  int64_t most = 0;              // starts after the first
  int64_t without_progress = 3;  // in a row
  std::chrono::seconds first_pause{1}, longest_pause{60};
  std::chrono::seconds patience{1800};  // with what does not answer
  bool several_hosts = false;           // one of them may be what does not answer
};

// How a start of the job has ended, and what the parent knows of the run then.
struct StartEnd {
  int status = 0;
  int asked = 0;               // the signal that told the parent to stop, or 0
  int64_t durable_step = 0;    // of the last checkpoint
  bool stepped = false;        // this start came to the end of a step
  std::string problem = {};    // why the run cannot go on in its directory now; "": it can
  std::chrono::seconds at{0};  // of a clock that never goes back
};

// [Note: what counts]
// An end counts towards giving up where the program is what failed: the start had come to a step,
// or no start of the run ever has, or the program crashed. Three such starts in a row without a
// newer checkpoint are enough. A run that has done steps is known to work. What keeps it from its
// first step later is the machine, as is a directory that cannot be reached or written: a storage
// that is away, a disk that is full, a host that does not answer. Such ends are limited by time
// alone, from the first of them on, and their starts do not count towards
// --restart.
class Restarts {
 public:
  explicit Restarts(const RestartLimits& limits) : limits_(limits) {}

  struct Decision {
    bool again = false;
    int status = 0;  // of the parent, where it does not start the job again
    std::chrono::seconds pause{0};
    std::string why = {};  // a line for the user; "": the job is done
  };
  Decision after(const StartEnd& end);
  // While the directory of the run does not answer, between two starts: waits, with a line each
  // minute.
  Decision wait(const std::string& problem, std::chrono::seconds at);
  int64_t count() const { return count_; }  // starts after the first

 private:
  bool is_of_machine(const StartEnd& end) const;
  Decision count_failure(const std::string& ended);
  Decision have_patience(const std::string& ended, std::chrono::seconds at);
  std::chrono::seconds pause_after(int64_t in_a_row) const;

  RestartLimits limits_;
  int64_t count_ = 0;
  int64_t counted_ = 0;  // of them, those after a failure that counts
  int64_t in_vain_ = 0;  // starts in a row that brought no checkpoint
  int64_t waits_ = 0;    // ends in a row that do not count
  int64_t durable_step_ = -1;
  bool works_ = false;  // a start of the run has come to a step
  std::optional<std::chrono::seconds> waiting_since_, told_;
};

}  // namespace fsdp::tools
