// The steps of a run: which batches they have, what goes on beside them, and how the loop ends.
#include <algorithm>
#include <cmath>
#include <csignal>

#include <fmt/chrono.h>

#include "comm/exchange.h"
#include "core/text/numbers.h"
#include "tools/launch/batch_job.h"
#include "tools/launch/launch.h"
#include "tools/run/training_run.h"
#include "tools/train/left_out.h"

namespace fsdp::tools {

// Those of the checkpoint, and with a rollback all since then.
BatchRanges TrainingRun::left_out() const {
  const TrainTotals before = plan_.manifest ? plan_.manifest->progress : TrainTotals{};
  if (!rolled_back_) return before.left_out;
  return with_range(before.left_out, batch_of_step(before.left_out, before.steps),
                    rolled_back_->batch + 1);
}

BatchSource TrainingRun::training() const {
  BatchSource source = data_.training(models::input_rules(model_));
  source.get = [out = left_out(), get = source.get](int64_t step) {
    return get(batch_of_step(out, step));
  };
  return source;
}

// A loss of another validation text is none of this one's.
TrainTotals TrainingRun::progress_before() const {
  TrainTotals before = plan_.manifest ? plan_.manifest->progress : TrainTotals{};
  before.left_out = left_out();
  if (rolled_back_) before.rollbacks = rolled_back_->rollbacks;
  if (!plan_.manifest) return before;
  if (validated_alike(*plan_.manifest, data_.validation_hash(), config_.train.eval_batches)) {
    return before;
  }
  before.validation_loss.reset();
  before.best_validation_loss.reset();
  return before;
}

std::function<void(int64_t step)> TrainingRun::note_unit_hashes() {
  if (!config_.checkpoint.unit_hashes) return {};
  agree(rank_.world, config_.runtime.patience(),
        [this] { unit_hashes_.emplace(*session_, directory_); });
  return [this](int64_t step) { unit_hashes_->note(step); };
}

TrainerOptions TrainingRun::trainer_options() {
  const auto samples_after = [this, out = left_out()](int64_t steps) {
    return samples_of_steps(out, steps, [&](int64_t batch) { return data_.samples_after(batch); });
  };
  const auto between_steps = [this](const TrainTotals& totals) {
    watch_checkpoint(false);
    tell_what_libraries_took();
    end_long_timeline(totals.steps);
    progress_file_.step(totals);
  };
  return {.steps = config_.train.steps,
          .spike = config_.train.spike,
          .on_nonfinite = config_.train.on_nonfinite,
          .max_rollbacks = config_.train.max_rollbacks,
          .log_every = config_.train.log_every.steps,
          .log_lines = config_.train.log_format.guest,
          .memory_bytes = limit_,
          .eval_every = config_.train.eval_every.steps,
          .schedule = config_.schedule(),
          .steps_per_epoch = data_.steps_per_epoch(),
          .samples_after = samples_after,
          .resume = progress_before(),
          .save_every = writes_checkpoints() ? config_.checkpoint.interval() : config::Interval{},
          .saves_at_end = config_.checkpoint.every || plan_.manifest,
          .save = [this](const TrainTotals& p, bool last) { write_checkpoint(p, last); },
          .between_steps = between_steps,
          .time = job_time_ ? &*job_time_ : nullptr,
          .before_update = note_unit_hashes()};
}

// Rank 0 watches it for all. Until a checkpoint was written, each rank is taken to write at the
// rate of a slow disk, but a short job must have time to train. A run that could do no step would
// be queued again for ever.
void TrainingRun::begin_job_time() {
  constexpr double kBytesPerSecond = 100e6;
  const double bytes = static_cast<double>(checkpoint_bytes(*session_)) / rank_.world.size();
  const LaunchOptions& launch = config_.runtime.launch;
  int64_t end = launch.end_time;
  if (end == 0 && speaks()) end = end_of_batch_job();
  end = comm::exchange_values(rank_.world, end).front();
  if (end == 0) return;
  const auto begun = static_cast<double>(
      comm::exchange_values(rank_.world, int64_t{std::llround(unix_time())}).front());
  const double left = static_cast<double>(end) - begun;
  const JobTime time(static_cast<double>(end), static_cast<double>(launch.grace_s),
                     std::clamp(bytes / kBytesPerSecond, 0.0, std::max(left / 8, 0.0)));
  const int restarts_of_job = rank_.restarts - batch_job().value_or(BatchJob()).restarts;
  if (time.is_over(begun) && restarts_of_job <= 0 && !rolled_back_) {
    throw AgreedError(fmt::format("the time of the job is over in {:.0f} s, and {:.0f} s are kept "
                                  "for two checkpoints and runtime.grace_s: no step "
                                  "can be done",
                                  left, time.needed_s()),
                      status::kGaveUp);
  }
  if (!speaks()) return;
  job_time_ = time;
  say(fmt::format("the time of the job is over at {:%Y-%m-%d %H:%M:%S} ({})",
                  fmt::localtime(static_cast<std::time_t>(end)),
                  launch.end_time > 0 ? "runtime.end_time" : "Slurm"));
}

// On rank 0.
std::string TrainingRun::reason_to_stop(int signal) const {
  if (signal == SIGUSR1 && job_time_ && job_time_->stops()) return "the end of the job's time";
  return std::string(name_of_signal(signal));
}

// The timeline is in memory until the end, however long a run is that somebody traces.
void TrainingRun::end_long_timeline(int64_t step) {
  constexpr int64_t kMostTraced = 1'000'000;  // numbers of operations: about 300 MB
  if (!traces_ || trace_.next_sequence() < kMostTraced) return;
  traces_ = false;
  session_->set_trace(nullptr);
  phases_->end_timeline();
  say(fmt::format("note: the timeline ends after step {}: a rank keeps {} operations", step,
                  format_count(kMostTraced)));
}

// The end of a job's time belongs to one start.
std::string TrainingRun::stored_config() const {
  config::TrainConfig stored = plan_.config;
  stored.runtime.launch.end_time = 0;
  return config::to_yaml(stored);
}

TrainTotals TrainingRun::train() {
  begin_job_time();
  const int terminal = speaks() ? output_terminal(rank_.under_launcher) : -1;
  Progress progress(speaks() ? options_.progress : nullptr, terminal,
                    config_.train.log_every.steps);
  MetricsLog metrics;
  agree(rank_.world, config_.runtime.patience(), [&] {
    if (speaks()) metrics = MetricsLog(directory_ / "metrics.jsonl");
  });
  Trainer trainer(*session_, trainer_options(), progress, metrics);
  try {
    BatchSource batches = training();
    batches.batches = config_.train.steps;  // of epochs, too
    Prefetch ahead(batches, config_.data.prefetch);
    std::optional<Monitor> monitor;
    if (config_.runtime.monitor_s > 0) monitor.emplace(monitoring());
    const TrainTotals totals =
        trainer.run(ahead.source(), data_.validation(models::input_rules(model_)));
    progress_file_.step(totals, true);
    batch_times_ = ahead.times();
    if (monitor) {
      monitor->stop();
      load_ = monitor->sums();
      monitor_problem_ = monitor->problem();
    }
    metrics.retry();
    if (!metrics.problem().empty()) say("warning: " + metrics.problem());
    const std::string problem = unit_hashes_ ? unit_hashes_->sync() : "";
    if (!problem.empty()) say("warning: " + problem);
    return totals;
  } catch (const RollBack&) {
    watch_checkpoint(true);
    throw;
  } catch (const AgreedError& error) {
    watch_checkpoint(true);  // one that is being written may be the last
    if (!checkpoints_ || checkpoints_->last().empty()) throw;
    throw AgreedError(
        fmt::format("{}; the last checkpoint is {}", error.what(), checkpoints_->last()),
        error.status(), error.cause());
  }
}

}  // namespace fsdp::tools
