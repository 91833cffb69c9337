// Whether a job that has ended is started again, and after what pause. Read next: parent.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace fsdp::tools {

struct RestartLimits {
  int64_t most = 0;              // starts after the first
  int64_t without_progress = 3;  // in a row
  std::chrono::seconds first_pause{1}, longest_pause{60};
};

class Restarts {
 public:
  explicit Restarts(const RestartLimits& limits) : limits_(limits) {}

  struct Decision {
    bool again = false;
    int status = 0;  // of the parent, where it does not start the job again
    std::chrono::seconds pause{0};
    std::string why;  // a line for the user; "": the job is done
  };
  // `asked`: the signal that told the parent to stop, or 0. `durable_step`: of the last checkpoint.
  Decision after(int status, int asked, int64_t durable_step);
  int64_t count() const { return count_; }  // starts after the first

 private:
  RestartLimits limits_;
  int64_t count_ = 0;
  int64_t in_vain_ = 0;  // starts in a row that brought no checkpoint
  int64_t durable_step_ = -1;
};

}  // namespace fsdp::tools
