// How long a rank has waited for others. Time in which this process did not run does not count: of
// a job that is suspended as a whole (Ctrl-Z, scontrol suspend) and continued, nobody is late. Nor
// does the time before a rank has made progress with what the others wait for.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>

#include "comm/work_progress.h"

namespace fsdp::comm {

class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLook{1000};

  explicit Patience(std::chrono::milliseconds limit, Clock::time_point now = Clock::now())
      : limit_(limit), left_(limit), looked_(now) {}
  Patience(std::chrono::milliseconds limit, std::shared_ptr<const WorkProgress> progress)
      : Patience(limit) {
    progress_ = std::move(progress);
    if (progress_) seen_ = progress_->of_job();
  }
  // Call it at least every kLook. A pause of more than twice that counts as twice that.
  bool over(Clock::time_point now = Clock::now()) {
    left_ -= std::min<Clock::duration>(now - looked_, 2 * kLook);
    looked_ = now;
    if (const uint64_t done = progress_ ? progress_->of_job() : seen_; done != seen_) {
      seen_ = done;
      left_ = limit_;
    }
    return left_ <= left_.zero();
  }
  // How long to sleep before the next look.
  Clock::duration until_look() const { return std::min<Clock::duration>(left_, kLook); }

 private:
  Clock::duration limit_, left_;
  Clock::time_point looked_;
  std::shared_ptr<const WorkProgress> progress_;  // null: nobody tells
  uint64_t seen_ = 0;
};

}  // namespace fsdp::comm
