// The rules of the loop of steps: which batch a step has, when the loop evaluates, which gradient
// norms are spikes, and when the time of the job is over. Not here: the loop, and what it does then
// (trainer.h); the order of the data (tools/data/loader.h); when the batch system says that the
// time is over (tools/launch/batch_job.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tools/config/config.h"
#include "tools/report/train_totals.h"

namespace fsdp::tools {

// Which batches a run leaves out, because it was rolled back after a step on them, and which batch
// a step has then. Steps count on without a gap; numbers of batches have gaps. Both begin at 0.
int64_t batch_of_step(const BatchRanges& left_out, int64_t step);
// And the batches [first, end): ranges stay in order and apart.
BatchRanges with_range(const BatchRanges& left_out, int64_t first, int64_t end);
// How many samples so many steps have trained on. `samples_before(batch)`: of all batches before
// it, in the order of the data.
int64_t samples_of_steps(const BatchRanges& left_out, int64_t steps,
                         const std::function<int64_t(int64_t batch)>& samples_before);

// When the loop of a run evaluates between its steps: for the trainer, and for the prediction of
// its memory (tools/predict/predicted_run.h), which must have the same calls in the same order.
struct LoopOrder {
  int64_t steps = 0;
  int64_t eval_every = 0;  // 0: only at the end

  // With `done` steps behind it. After the last one it evaluates anyway.
  bool evaluates_between(int64_t done) const {
    return eval_every > 0 && done > 0 && done < steps && done % eval_every == 0;
  }
};

// Which gradient norms are spikes: those above `factor` times the median of the norms of the last
// `window` steps that updated the model. The rule begins when there are so many. The limit of a
// step follows from the steps before it, so that the device can leave its update out
// (core/shard_args.h, ClipArgs) and nobody waits for its norm. PaLM (arXiv 2204.02311, 5.1) went
// back about 100 steps at a spike and left out 200 to 500 batches.
class SpikeRule {
 public:
  // `norms`: where the last norms are kept, oldest first; what is there already counts. It outlives
  // this.
  SpikeRule(const config::SpikeSection& options, std::vector<double>& norms)
      : options_(options), norms_(norms) {
    trim();  // a run may go on with another window
  }

  double limit() const;   // of the next step; infinity: none
  void add(double norm);  // of a step that updated the model

 private:
  void trim();

  const config::SpikeSection options_;
  std::vector<double>& norms_;
};

// When a run has to stop because the time of its job is nearly over (runtime.end_time): early
// enough to finish a step and to save twice, should the disk be slower than before.
class JobTime {
 public:
  // `end`: Unix time; 0: none. `grace_s`: in addition to what is measured. `save_s`: of the first
  // save, a guess.
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
