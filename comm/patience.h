// How long a rank has waited for others. Time in which this process did not run does not count: of
// a job that is suspended as a whole (Ctrl-Z, scontrol suspend) and continued, nobody is late.
#pragma once

#include <algorithm>
#include <chrono>

namespace fsdp::comm {

class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLook{1000};

  explicit Patience(std::chrono::milliseconds limit, Clock::time_point now = Clock::now())
      : left_(limit), looked_(now) {}
  // Call it at least every kLook. A pause of more than twice that counts as twice that.
  bool over(Clock::time_point now = Clock::now()) {
    left_ -= std::min<Clock::duration>(now - looked_, 2 * kLook);
    looked_ = now;
    return left_ <= left_.zero();
  }
  // How long to sleep before the next look.
  Clock::duration until_look() const { return std::min<Clock::duration>(left_, kLook); }

 private:
  Clock::duration left_;
  Clock::time_point looked_;
};

}  // namespace fsdp::comm
