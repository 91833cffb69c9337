// When a run has to stop because the time of its job is nearly over (runtime.end_time): early
// enough to finish a step and to save twice, should the disk be slower than before. Not here: when
// the batch system says that the time is over (tools/launch/batch_job.h), how a run stops
// (trainer.h).
#pragma once

#include <algorithm>

namespace fsdp::tools {

class JobTime {
 public:
  // `end`: Unix time; 0: none. `grace_s`: beside what is measured. `save_s`: of the first save, a
  // guess.
  JobTime(double end, double grace_s, double save_s)
      : end_(end), grace_s_(grace_s), save_s_(save_s) {}

  void step_took(double seconds) { longest_step_s_ = std::max(longest_step_s_, seconds); }
  void save_took(double seconds) { save_s_ = seconds; }
  double needed_s() const { return 2 * save_s_ + longest_step_s_ + grace_s_; }
  // That the run was told to stop for it.
  void stop() { stops_ = true; }
  bool stops() const { return stops_; }
  // `now`: Unix time.
  bool is_over(double now) const { return end_ > 0 && end_ - now < needed_s(); }
  double left_s(double now) const { return end_ - now; }

 private:
  double end_, grace_s_, save_s_;
  double longest_step_s_ = 0;
  bool stops_ = false;
};

}  // namespace fsdp::tools
