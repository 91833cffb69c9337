// The loop of a run: which batches its steps have, what happens between them, the checkpoints that
// are written meanwhile, and how the loop ends. The result is the run's totals.
#include <algorithm>
#include <cmath>
#include <csignal>

#include <fmt/chrono.h>

#include "comm/exchange.h"
#include "core/text/numbers.h"
#include "models/config.h"
#include "tools/checkpoint/run_checkpoints.h"
#include "tools/launch/batch_job.h"
#include "tools/launch/interrupt.h"
#include "tools/report/source_commit.h"
#include "tools/run/training_run.h"

namespace fsdp::tools {

// ---------------------------------------------------------------------------- Steps

// Those of the checkpoint, and with a rollback all since then.
BatchRanges TrainingRun::left_out() const {
  const TrainTotals before = kept();
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
  TrainTotals before = kept();
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
  if (time.is_over(begun) && rank_.before.by_parent == 0 && !rolled_back_) {
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

MonitorOptions TrainingRun::monitoring() const {
  const bool samples_host = first_rank_of_host(rank_.world);
  const std::string host_file = fmt::format("monitor.host.{}.csv", host_name());
  return {.file = directory_ / fmt::format("monitor.rank{}.csv", rank_.world.rank()),
          .host_file = samples_host ? directory_ / host_file : "",
          .interval = std::chrono::duration<double>(config_.runtime.monitor_s),
          .later = std::chrono::duration<double>(config_.runtime.monitor_later_s),
          .gpu = gpu(),
          .ledger = &session_->backend().ledger(),
          .disk = disk_of(directory_)};
}

TrainTotals TrainingRun::train() {
  begin_job_time();
  const int terminal = speaks() ? output_terminal(rank_.under_launcher) : -1;
  Progress progress(speaks() ? options_.progress : nullptr, terminal,
                    config_.train.log_every.steps);
  MetricsLog metrics;
  with_patience([&] {
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
    say_notes({metrics.problem(), unit_hashes_ ? unit_hashes_->sync() : ""}, "warning: ");
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
// ---------------------------------------------------------------------------- Checkpoints

// Of the parameters that are not trained, where they come from; "": all are trained.
std::string TrainingRun::base_of(Session& session) const {
  const std::vector<Parameter*> all = session.parameters();
  if (std::all_of(all.begin(), all.end(), [](const Parameter* p) { return p->trainable(); })) {
    return "";
  }
  if (config_.model.path.empty()) return fmt::format("from seed {}", config_.train.seed);
  return std::filesystem::absolute(config_.model.path).lexically_normal().string();
}

RunCheckpoints& TrainingRun::checkpoints() {
  if (checkpoints_) return *checkpoints_;
  Manifest facts;
  facts.program = source_commit();
  facts.run = id_;
  facts.device = device();
  facts.config = stored_config();
  facts.model = models::config_json(model_, "");
  facts.data = data_.hashes();
  facts.data[kValidationTokens] = data_.validation_hash();
  facts.total_steps = config_.train.steps;
  facts.base_path = base_of(*session_);
  checkpoints_.emplace(*session_, config_, directory_, std::move(facts));
  if (plan_.manifest) say_notes({checkpoints_->go_on(plan_.checkpoint, *plan_.manifest)});
  return *checkpoints_;
}

bool TrainingRun::writes_checkpoints() const {
  return !config_.checkpoint.interval().never() && !without_checkpoints_;
}

// Nobody has asked for those that a run writes by itself.
bool TrainingRun::needs_checkpoints() const {
  return config_.checkpoint.required && config_.checkpoint.every;
}

// What is wrong with their place may be known only now.
bool TrainingRun::start_checkpoint(const TrainTotals& totals) {
  try {
    checkpoints().start(totals);
    return true;
  } catch (const AgreedError& error) {
    failed_checkpoint_ = fmt::format("step {}: no checkpoint: {}", totals.steps, error.what());
    return false;
  }
}

// A checkpoint that failed beside the steps is tried again here, with the state of now, and waited
// for. A failure ends the run (checkpoint.required); after the last step the model is saved first.
void TrainingRun::write_checkpoint(const TrainTotals& totals, bool last) {
  const auto began = std::chrono::steady_clock::now();
  watch_checkpoint(true);                  // the one before
  if (unit_hashes_) unit_hashes_->sync();  // of the steps before it
  const bool again = !failed_checkpoint_.empty();
  last_save_ = last;
  const bool started = start_checkpoint(totals);
  const bool beside = config_.checkpoint.async && !again && !last;
  const bool failed = !started || (!beside && !take_checkpoint(true));
  const std::chrono::duration<double> stood = std::chrono::steady_clock::now() - began;
  if (!last) progress_file_.add_save(stood.count(), 0);
  if (!failed) return;
  if (!needs_checkpoints()) return say("warning: " + failed_checkpoint_);
  if (!last) throw AgreedError(failed_checkpoint_);
}

void TrainingRun::watch_checkpoint(bool wait) {
  if (!take_checkpoint(wait)) say("warning: " + failed_checkpoint_);
}

// Says where the checkpoint is that was started last, once it is there; false when it has failed.
bool TrainingRun::take_checkpoint(bool wait) {
  if (!checkpoints_ || (!wait && !checkpoints_->is_done())) return true;
  const int64_t step = checkpoints_->step_of_write();
  if (step < 0) return true;  // told already
  try {
    const auto written = checkpoints_->finish();
    failed_checkpoint_.clear();
    durable_step_ = written->step;
    progress_file_.note_durable(durable_step_);
    if (!last_save_) progress_file_.add_save(0, written->seconds);
    if (job_time_) job_time_->save_took(written->seconds);
    say(fmt::format("step {}: checkpoint {}", written->step, written->folder.string()));
    say_notes(written->warnings, "warning: ");
    return true;
  } catch (const AgreedError& error) {
    failed_checkpoint_ = fmt::format("step {}: no checkpoint: {}", step, error.what());
    return false;
  }
}

// After the last step. A signal may have come while the checkpoint of that step was being written:
// where that has failed it is tried once more, because the run may be killed soon.
void TrainingRun::settle_checkpoint(const TrainTotals& totals) {
  watch_checkpoint(true);
  const bool saves = writes_checkpoints() || totals.signal == SIGUSR1;
  if (totals.signal == 0 || !saves || failed_checkpoint_.empty()) return;
  if (!start_checkpoint(totals)) return say("warning: " + failed_checkpoint_);
  watch_checkpoint(true);
}

}  // namespace fsdp::tools
