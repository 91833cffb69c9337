// The training loop of one rank: batches, schedule, progress, evaluation. It ends in one of three
// ways: all steps are done, a signal came (looked at between micro-steps too; a step that is cut
// short is dropped), or a loss is not finite. Every decision is the same on all ranks. The host
// runs one step ahead: it issues forward and backward of a step before it reads the results of the
// previous step. It issues the update after that, because the learning rate depends on whether the
// previous step was skipped. Not here: where batches come from (tools/data), what is written at the
// end (tools/run).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "optim/schedule.h"
#include "tools/launch/interrupt.h"
#include "tools/report/log_lines.h"
#include "tools/report/metrics.h"
#include "tools/report/progress.h"
#include "tools/train/evaluation.h"
#include "tools/train/session.h"

namespace fsdp::tools {

// What the loop knows besides the state of the session: with both a run goes on as if it had never
// stopped.
struct TrainProgress {
  int64_t steps = 0;    // done, with or without an update
  int64_t skipped = 0;  // of them, without an update
  int64_t true_tokens = 0;
  int64_t samples = 0;
  double wall_time_s = 0;
  double step_time_s = 0;
  std::vector<double> recent_losses;      // at most log_every
  double loss_sum = 0;                    // of all steps; see Trainer::finish
  std::optional<double> validation_loss;  // the last one
  int64_t validated_at = -1;              // after that many steps; -1: never
  std::optional<double> best_validation_loss = {};
  bool operator==(const TrainProgress&) const = default;
};

struct TrainerOptions {
  int64_t steps = 0;
  int64_t log_every = 10;
  const LogLines* log_lines = nullptr;  // null: ours
  size_t memory_bytes = 0;              // that this rank may hold; 0: not known
  int64_t eval_every = 0;               // 0: only at the end
  optim::Schedule schedule;
  int64_t steps_per_epoch = 0;  // 0: not known; then no epochs are logged
  std::function<int64_t(int64_t steps)> samples_after = {};  // that many steps; none: not known
  TrainProgress resume = {};  // where to go on; by default at the beginning
  // Steps between calls of `save`, and after the last step; 0: only where a signal asks for it.
  int64_t save_every = 0;
  // Keeps the session's state and the progress. All steps so far are finished. `last`: the run ends
  // here. Collective.
  std::function<void(const TrainProgress& progress, bool last)> save = {};
  std::function<void()> between_steps = {};  // no collective in it; none: nothing
};

struct TrainOutcome {
  int64_t steps = 0;        // done, with or without an update
  int64_t skipped = 0;      // steps without an update, because gradients overflowed
  int signal = 0;           // the signal that ended the run early, or 0
  int64_t true_tokens = 0;  // labels trained on, over all ranks
  double wall_time_s = 0;
  double step_time_s = 0;                 // without evaluations
  int64_t samples = 0;                    // trained on, over all ranks
  double last_steps_per_s = 0;            // of the steps since the logged line before the last
  double last_samples_per_s = 0;          // also
  double train_loss = 0;                  // mean over the last `log_every` steps
  double mean_loss = 0;                   // over all steps
  std::optional<double> validation_loss;  // after the last step
  std::optional<double> best_validation_loss;
};

class Trainer {
 public:
  // All arguments must outlive the trainer. Collective.
  Trainer(Session& session, const TrainerOptions& options, Progress& progress, MetricsLog& metrics);

  // Throws AgreedError when the loss or the gradient norm is not finite. With loss scaling it
  // throws when the scale cannot fall further, or when no step has updated the model. Collective.
  TrainOutcome run(const BatchSource& training, const BatchSource& validation);

 private:
  using Clock = std::chrono::steady_clock;
  struct IssuedStep {
    StepHandle handle;
    Batch batch;  // kept to find the unit when the result is not finite
    int64_t step = 0;
    double learning_rate = 0;
  };

  bool stops_between_micro_steps();
  void finish(const IssuedStep& issued);
  void check_values(const IssuedStep& issued, const StepValues& values);
  void report(const IssuedStep& issued, const StepValues& values);
  void tell_of_overflow(const StepValues& values);
  [[noreturn]] void fail_not_finite(const IssuedStep& issued, const StepValues& values);
  [[noreturn]] void fail_without_update() const;
  void evaluate(const BatchSource& validation);
  void end(const BatchSource& validation);
  std::optional<double> epoch() const;
  double next_rate() const;
  LogTotals log_totals() const;
  LogContext log_context() const;
  void save(bool last);
  void tell(const std::string& line);  // "": nothing
  void tell_of_log();
  TrainProgress progress_so_far() const;

  Session& session_;
  TrainerOptions options_;
  Progress& progress_;
  MetricsLog& metrics_;
  StopVote vote_;
  EventPtr micro_step_before_;  // done when the one before the last issued is

  TrainOutcome outcome_;
  std::vector<double> recent_losses_;  // at most log_every
  double loss_sum_ = 0;
  Clock::time_point started_;
  Clock::time_point step_ended_;  // the last step, or the evaluation after it
  LogWindow window_;              // since the last line of metrics
  LogWindow printed_window_;      // since the last step that was printed
  StepMetrics last_;              // the last such line
  double tokens_per_s_ = 0;
  double last_scale_ = 1;
  int64_t validated_at_ = -1;
  int64_t saved_at_ = -1;
  bool told_of_log_ = false;
};

}  // namespace fsdp::tools
