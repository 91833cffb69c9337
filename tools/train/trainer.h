// The training loop of one rank: batches, schedule, progress, evaluation. It ends in one of three
// ways: all steps are done, a signal came (looked at between micro-steps too; a step that is cut
// short is dropped), or a loss is not finite or a gradient far too large. Every decision is the
// same on all ranks. The host runs one step ahead: it issues forward and backward of a step before
// it reads the results of the previous step. It issues the update after that, because the learning
// rate depends on whether the previous step was skipped. Not here: where batches come from
// (tools/data), what is written at the end (tools/run).
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "optim/schedule.h"
#include "tools/engine/session.h"
#include "tools/launch/interrupt.h"
#include "tools/launch/launch.h"
#include "tools/report/log_lines.h"
#include "tools/report/metrics.h"
#include "tools/report/progress.h"
#include "tools/report/train_totals.h"
#include "tools/train/evaluation.h"
#include "tools/train/loop_rules.h"

namespace fsdp::tools {

struct TrainerOptions {
  int64_t steps = 0;
  config::SpikeSection spike = {};
  config::OnNonfinite on_nonfinite = config::OnNonfinite::kStop;
  int64_t max_rollbacks = 3;
  int64_t log_every = 10;
  const LogLines* log_lines = nullptr;  // null: ours
  size_t memory_bytes = 0;              // that this rank may hold; 0: not known
  int64_t eval_every = 0;               // 0: only at the end
  optim::Schedule schedule;
  int64_t steps_per_epoch = 0;  // 0: not known; then no epochs are logged
  std::function<int64_t(int64_t steps)> samples_after = {};  // that many steps; none: not known
  // Where to go on; by default at the beginning. With it and the state of the session a run goes on
  // as if it had never stopped.
  TrainTotals resume = {};
  // Steps or time between calls of `save`, and after the last step; never: only where a signal asks
  // for it. Rank 0's clock counts.
  config::Interval save_every = {};
  bool saves_at_end = true;  // false: after the last step only where it was called before
  // Keeps the session's state and the totals. All steps so far are finished. `last`: the run ends
  // here. Collective.
  std::function<void(const TrainTotals& totals, bool last)> save = {};
  // Gets the totals of the last step that is finished. No collective in it; none: nothing.
  std::function<void(const TrainTotals& totals)> between_steps = {};
  // Whose end stops the run as SIGUSR1 does; null: the time is not limited, or another rank
  // watches.
  JobTime* time = nullptr;
  // Sees the reduced gradients of this step, counted from 1, before they are used. Collective;
  // none: nobody looks.
  std::function<void(int64_t step)> before_update = {};
};

// The run is to go on from its last checkpoint, without the batches since then up to this one.
class RollBack : public AgreedError {
 public:
  struct Where {
    int64_t batch = 0;      // of the step that failed, in the order of the data
    int64_t rollbacks = 0;  // of the run, with this one
  };
  RollBack(const std::string& message, const Where& where) : AgreedError(message), where_(where) {}
  const Where& where() const { return where_; }

 private:
  Where where_;
};

class Trainer {
 public:
  // All arguments must outlive the trainer. Collective.
  Trainer(Session& session, const TrainerOptions& options, Progress& progress, MetricsLog& metrics);

  // Throws AgreedError when the loss or the gradient norm is not finite, or the norm is a spike,
  // where that stops the run; RollBack where that rolls it back. With loss scaling it throws when
  // the scale cannot fall further, or when no step has updated the model. Collective.
  TrainTotals run(const BatchSource& training, const BatchSource& validation);

 private:
  using Clock = std::chrono::steady_clock;
  struct IssuedStep {
    StepHandle handle;
    Batch batch;  // kept to find the unit when the result is not finite
    int64_t step = 0;
    double learning_rate = 0;
    double norm_limit = 0;  // above it the device has left the update out
  };

  bool stops_between_micro_steps();
  bool is_due(int64_t step) const;
  void vote();
  int asked_to_stop();
  void watch_time();
  void count(const StepValues& values);
  void finish(const IssuedStep& issued);
  void check_values(const IssuedStep& issued, const StepValues& values);
  void report(const IssuedStep& issued, const StepValues& values);
  void tell_of_overflow(const StepValues& values);
  void act_on_spike(const IssuedStep& issued, const StepValues& values);
  [[noreturn]] void end_or_roll_back(const IssuedStep& issued, bool rolls_back,
                                     const std::string& what) const;
  [[noreturn]] void fail_not_finite(const IssuedStep& issued, const StepValues& values);
  [[noreturn]] void fail_without_update() const;
  void evaluate(const BatchSource& validation);
  void end(const BatchSource& validation);
  std::optional<double> epoch() const;
  double next_rate() const;
  LogContext log_context() const;
  void save(bool last);
  void tell(const std::string& line);  // "": nothing
  void tell_of_log();

  Session& session_;
  TrainerOptions options_;
  Progress& progress_;
  MetricsLog& metrics_;
  StopVote vote_;
  EventPtr micro_step_before_;  // done when the one before the last issued is

  TrainTotals totals_;
  SpikeRule spikes_;
  Clock::time_point started_;
  Clock::time_point step_ended_;  // the last step, or the evaluation after it
  LogWindow window_;              // since the last line of metrics
  LogWindow printed_window_;      // since the last step that was printed
  StepMetrics last_;              // the last such line
  double tokens_per_s_ = 0;
  double last_scale_ = 1;
  int64_t saved_at_ = -1;
  Clock::time_point saved_time_;  // of the last save of this process, or its first step
  bool due_ = false;              // by the time since then
  bool has_saved_ = false;        // in this process
  bool told_of_log_ = false;
};

}  // namespace fsdp::tools
