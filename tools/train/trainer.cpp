// Order of one step: issue its forward and backward, read and report the step before, issue the
// update, vote whether to go on.
#include "tools/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

#include "comm/exchange.h"
#include "core/text/numbers.h"
#include "tools/report/metrics_line.h"
#include "tools/report/run_costs.h"
#include "tools/train/loop_rules.h"

namespace fsdp::tools {
namespace {

double seconds_between(std::chrono::steady_clock::time_point a,
                       std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace

Trainer::Trainer(Session& session, const TrainerOptions& options, Progress& progress,
                 MetricsLog& metrics)
    : session_(session),
      options_(options),
      progress_(progress),
      metrics_(metrics),
      vote_(session.world()),
      totals_(options.resume),
      spikes_(options.spike, totals_.good_norms),
      saved_at_(totals_.steps) {
  totals_.begin_process();
}

// A step may be the one of an interval, the last, and the one before a signal ends the run.
void Trainer::save(bool last) {
  if (!options_.save || saved_at_ == totals_.steps) return;
  const PhaseScope phase(session_.phases(), "checkpoint");
  // A checkpoint must not be on the disk without the lines before it: they are never made again.
  metrics_.sync();
  tell_of_log();
  totals_.wall_time_s = seconds_between(started_, Clock::now());
  options_.save(totals_, last);
  saved_at_ = totals_.steps;
  step_ended_ = saved_time_ = Clock::now();
  has_saved_ = true;
}

bool Trainer::is_due(int64_t step) const {
  return options_.save_every.steps > 0 && step % options_.save_every.steps == 0;
}

// The signal reaches all ranks by the next vote.
void Trainer::watch_time() {
  if (!options_.time || received_interrupt() != 0 || !options_.time->is_over(unix_time())) return;
  progress_.note(
      fmt::format("the time of the job is over in {:.0f} s; {:.0f} s are kept "
                  "for the end of a step and a checkpoint: the run stops",
                  options_.time->left_s(unix_time()), options_.time->needed_s()));
  options_.time->stop();
  std::raise(SIGUSR1);
}

int Trainer::asked_to_stop() {
  watch_time();
  return vote_.taken().signal;
}

void Trainer::vote() {
  watch_time();
  const std::chrono::seconds every(options_.save_every.seconds);
  const bool due = every.count() > 0 && Clock::now() - saved_time_ >= every;
  const StopVote::Answer answer = vote_.taken(due);
  totals_.signal = answer.signal;
  due_ = answer.due;
}

TrainTotals Trainer::run(const BatchSource& training, const BatchSource& validation) {
  step_ended_ = saved_time_ = Clock::now();
  started_ = step_ended_ - std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double>(options_.resume.wall_time_s));
  std::unique_ptr<IssuedStep> before;
  const auto finish_before = [&] {
    if (before) finish(*before);
    before.reset();
  };
  // A signal may have come before the evaluation of the step that the run goes on from.
  const LoopOrder order = {.steps = options_.steps, .eval_every = options_.eval_every};
  if (order.evaluates_between(totals_.steps) && totals_.validated_at != totals_.steps) {
    evaluate(validation);
    // The checkpoint of this step can be judged now.
    if (is_due(totals_.steps)) saved_at_ = -1;
    if (totals_.signal == 0) save(false);
  }
  for (int64_t step = totals_.steps; step < options_.steps && totals_.signal == 0; ++step) {
    auto issued = std::make_unique<IssuedStep>();
    issued->batch = training.get(step);
    issued->step = step;
    {
      const PhaseScope phase(session_.phases(), fmt::format("step {}", step + 1));
      // Then no step is skipped, and the one before need not be read for the rate.
      if (session_.steps().updates_in_backward()) {
        session_.steps().begin_update(options_.schedule.rate(step - totals_.skipped));
      }
      session_.forward_backward(issued->batch, static_cast<uint32_t>(step), true,
                                [this] { return stops_between_micro_steps(); });
      finish_before();
      if (totals_.signal != 0) break;  // the step was dropped
      if (options_.before_update) options_.before_update(step + 1);
      issued->learning_rate = next_rate();
      issued->norm_limit = spikes_.limit();
      issued->handle = session_.update(issued->learning_rate, issued->norm_limit);
    }
    before = std::move(issued);
    const bool last = step + 1 == options_.steps;
    if (order.evaluates_between(step + 1)) {
      finish_before();
      evaluate(validation);
    }
    if ((is_due(step + 1) || due_) && !last) {
      finish_before();
      save(false);
    }
    due_ = false;
    if (options_.between_steps) options_.between_steps(totals_);
    if (totals_.signal == 0) vote();
  }
  finish_before();
  end(validation);
  totals_.wall_time_s = seconds_between(started_, Clock::now());
  const LogLines* const lines = options_.log_lines;
  if (lines && lines->end && totals_.signal == 0 && last_.totals.steps > 0) {
    tell(lines->end(last_, log_context()));
  }
  return totals_;
}

// The host stays one micro-step ahead of the device: further, and it would have issued a long step
// before a signal comes.
bool Trainer::stops_between_micro_steps() {
  Backend& backend = session_.backend();
  const EventPtr before =
      std::exchange(micro_step_before_, backend.record(backend.compute_stream()));
  if (before) before->wait();
  totals_.signal = asked_to_stop();
  return totals_.signal != 0;
}

// After the last step, or the one that a signal let finish.
void Trainer::end(const BatchSource& validation) {
  if (totals_.signal == 0 && totals_.skipped == totals_.steps) fail_without_update();
  if (totals_.validated_at != totals_.steps) {
    totals_.validation_loss.reset();
    if (totals_.signal == 0) {
      evaluate(validation);
      saved_at_ = -1;  // a checkpoint of this step that a signal left unjudged is judged now
    }
  }
  const bool at_end = totals_.signal != 0 || options_.saves_at_end || has_saved_;
  if ((!options_.save_every.never() && at_end) || totals_.signal == SIGUSR1) save(true);
}

void Trainer::finish(const IssuedStep& issued) {
  const StepValues values = issued.handle.read();
  // The time at which the device was done, not the time now: a step is read late, and the last two
  // are read one right after the other.
  const double seconds = seconds_between(step_ended_, values.ended);
  if (options_.time) options_.time->step_took(seconds);
  step_ended_ = values.ended;
  totals_.wall_time_s = seconds_between(started_, step_ended_);
  totals_.steps = issued.step + 1;
  count(values);
  last_scale_ = values.loss_scale;
  totals_.true_tokens += issued.batch.global_label_tokens;
  LogWindow step = {.steps = 1, .tokens = issued.batch.global_label_tokens, .seconds = seconds};
  if (options_.samples_after) {
    const int64_t samples = options_.samples_after(totals_.steps);
    step.samples = samples - std::exchange(totals_.samples, samples);
  }
  totals_.step_time_s += seconds;
  while (totals_.recent_losses.size() >= static_cast<size_t>(options_.log_every)) {
    totals_.recent_losses.erase(totals_.recent_losses.begin());
  }
  totals_.recent_losses.push_back(values.loss);
  // A loss that is not finite counts as the mean so far, as with transformers'
  // logging_nan_inf_filter.
  const auto before = static_cast<double>(std::max<int64_t>(issued.step, 1));
  step.loss_sum = std::isfinite(values.loss) ? values.loss : totals_.loss_sum / before;
  totals_.loss_sum += step.loss_sum;
  window_.add(step);
  printed_window_.add(step);
  report(issued, values);
  check_values(issued, values);
}

void Trainer::count(const StepValues& values) {
  const bool spike = values.skipped == kSpike;
  totals_.spikes += spike ? 1 : 0;
  totals_.spikes_in_a_row = spike ? totals_.spikes_in_a_row + 1 : 0;
  if (values.skipped == kNotSkipped) return spikes_.add(values.grad_norm);
  // Without loss scaling a step that is not finite ends the run.
  if (!spike && !session_.scales_loss()) return;
  ++totals_.skipped;
  if (!spike) tell_of_overflow(values);
}

// The update after this one is not issued yet: the scale is the one that this step has left. Where
// the step has reached the minimum, the error says so.
void Trainer::tell_of_overflow(const StepValues& values) {
  const LogLines* const lines = options_.log_lines;
  if (!lines || !lines->overflow || values.scale_at_minimum) return;
  tell(lines->overflow(session_.loss_scaler()->state().scale));  // waits
}

void Trainer::check_values(const IssuedStep& issued, const StepValues& values) {
  if (values.skipped == kSpike) act_on_spike(issued, values);
  if (!session_.scales_loss()) {
    const bool finite = std::isfinite(values.loss) && std::isfinite(values.grad_norm);
    if (!finite) fail_not_finite(issued, values);
  } else if (values.scale_at_minimum) {
    end_or_roll_back(
        issued, options_.on_nonfinite == config::OnNonfinite::kRollback,
        fmt::format("step {}: gradients overflow at a loss scale of {:g}, after {} skipped steps, "
                    "and the next one would not be above train.loss_scale.minimum {:g}: the model "
                    "diverges, or train.dtype bf16 is needed; try a lower train.lr or minimum",
                    issued.step + 1, values.loss_scale, totals_.skipped,
                    session_.loss_scale().rule.minimum));
  }
}

void Trainer::act_on_spike(const IssuedStep& issued, const StepValues& values) {
  const config::SpikeSection& spike = options_.spike;
  const std::string what =
      fmt::format("step {}: gradient norm {:.4g}: above {:.4g}, {:g} times the median of {} steps",
                  issued.step + 1, values.grad_norm, issued.norm_limit, spike.factor, spike.window);
  if (spike.action != config::SpikeAction::kSkip) {
    end_or_roll_back(issued, spike.action == config::SpikeAction::kRollback,
                     what + " (train.spike)");
  }
  if (totals_.spikes_in_a_row >= spike.in_a_row) {
    throw AgreedError(fmt::format("{}, the last of {} in a row (train.spike.in_a_row)", what,
                                  totals_.spikes_in_a_row),
                      status::kGaveUp);
  }
  tell(fmt::format("warning: {}: no update (train.spike)", what));
}

void Trainer::end_or_roll_back(const IssuedStep& issued, bool rolls_back,
                               const std::string& what) const {
  if (!rolls_back) throw AgreedError(what, status::kGaveUp);
  if (totals_.rollbacks >= options_.max_rollbacks) {
    throw AgreedError(
        fmt::format("{}, after {} rollbacks (train.max_rollbacks)", what, totals_.rollbacks),
        status::kGaveUp);
  }
  throw RollBack(what, {.batch = batch_of_step(totals_.left_out, issued.step),
                        .rollbacks = totals_.rollbacks + 1});
}

void Trainer::report(const IssuedStep& issued, const StepValues& values) {
  const bool finite = std::isfinite(values.loss) && std::isfinite(values.grad_norm);
  const LoggedSteps logged_steps = {options_.log_every, options_.steps};
  const bool logged = logged_steps.has(totals_.steps, finite) || totals_.signal != 0;
  if (logged || tokens_per_s_ == 0) {
    tokens_per_s_ = static_cast<double>(window_.tokens) / window_.seconds;
  }
  const StepMetrics metrics = {.totals = totals_,
                               .total_steps = options_.steps,
                               .loss = values.loss,
                               .grad_norm = values.grad_norm,
                               .learning_rate = issued.learning_rate,
                               .next_learning_rate = next_rate(),
                               .loss_scale = values.loss_scale,
                               .epoch = epoch(),
                               .tokens_per_s = tokens_per_s_,
                               .peak_memory_bytes = session_.peak_memory()};
  const LogLines* const lines = options_.log_lines;
  if (!lines) progress_.step(metrics);
  if (!logged) return;
  last_ = metrics;
  if (window_.seconds > 0) {
    totals_.last_steps_per_s = static_cast<double>(window_.steps) / window_.seconds;
    totals_.last_samples_per_s = static_cast<double>(window_.samples) / window_.seconds;
  }
  metrics_.step(last_);
  window_ = {};
  if (lines && lines->prints_step(totals_.steps, options_.log_every)) {
    progress_.note(lines->step(last_, printed_window_, log_context()));
    printed_window_ = {};
  }
  tell_of_log();
}

// A skipped step moves neither the optimizer nor the schedule.
double Trainer::next_rate() const {
  return options_.schedule.rate(totals_.steps - totals_.skipped);
}

LogContext Trainer::log_context() const {
  return {.total_steps = options_.steps,
          .steps_per_epoch = options_.steps_per_epoch,
          .memory_bytes = options_.memory_bytes,
          .scales_loss = session_.scales_loss()};
}

std::optional<double> Trainer::epoch() const {
  if (options_.steps_per_epoch == 0) return {};
  return static_cast<double>(totals_.steps) / static_cast<double>(options_.steps_per_epoch);
}

void Trainer::tell(const std::string& line) {
  if (!line.empty()) progress_.note(line);
}

// Once, and when it is over: the lines are kept, and the run says at its end whether they could be
// written after all.
void Trainer::tell_of_log() {
  const std::string problem = metrics_.problem();
  if (problem.empty() != told_of_log_) return;
  told_of_log_ = !problem.empty();
  progress_.note(told_of_log_ ? "warning: " + problem : "note: metrics.jsonl is written again");
}

// The update was skipped on the device (its norm is not finite) and the next one is not issued yet,
// so the parameters are still those that gave this loss, and a forward pass shows where it began.
void Trainer::fail_not_finite(const IssuedStep& issued, const StepValues& values) {
  const std::string what =
      fmt::format("step {}: loss {}, gradient norm {}: not finite", issued.step + 1,
                  format_value(values.loss), format_value(values.grad_norm));
  const bool rolls_back = options_.on_nonfinite == config::OnNonfinite::kRollback;
  if (session_.steps().updates_in_backward()) {
    end_or_roll_back(issued, rolls_back,
                     what +
                         "; fsdp.update_in_backward has updated the parameters, which cannot show "
                         "where it began");
  }
  // Drops the step after this one, if its backward has run already.
  session_.restart_step();
  const std::string mine = session_.first_nonfinite_unit(issued.batch);
  const auto unit = comm::first_to_say(session_.world(), mine);
  end_or_roll_back(issued, rolls_back,
                   unit ? fmt::format("{}; first in the output of unit {} on rank {}", what,
                                      unit->text, unit->rank)
                        : what + "; all units' outputs are finite, so it is in the gradients");
}

void Trainer::fail_without_update() const {
  throw AgreedError(
      fmt::format("no step updated the model: gradients overflowed in all {}, the last time at a "
                  "loss scale of {:g}; lower train.loss_scale.initial or raise train.steps",
                  totals_.steps, last_scale_));
}

void Trainer::evaluate(const BatchSource& validation) {
  if (totals_.signal != 0) return;
  const PhaseScope phase(session_.phases(), "evaluation");
  const Clock::time_point began = Clock::now();
  const TextLoss loss = loss_of_batches(session_, validation, [&](int64_t, const TextLoss&) {
    totals_.signal = asked_to_stop();
    return totals_.signal == 0;
  });
  step_ended_ = Clock::now();
  if (loss.tokens == 0 || totals_.signal != 0) return;
  totals_.validation_loss = loss.mean();
  totals_.validated_at = totals_.steps;
  const bool finite = std::isfinite(*totals_.validation_loss);
  std::optional<double>& best = totals_.best_validation_loss;
  if (finite && !(best && *best <= *totals_.validation_loss)) best = totals_.validation_loss;
  const EvaluationMetrics metrics = {.step = totals_.steps,
                                     .epoch = epoch(),
                                     .loss = *totals_.validation_loss,
                                     .best_loss = best.value_or(NAN),
                                     .runtime_s = seconds_between(began, step_ended_),
                                     .tokens = loss.tokens,
                                     .sequences = validation.sequences,
                                     .batches = validation.batches};
  metrics_.evaluation(metrics);
  tell(options_.log_lines ? options_.log_lines->evaluation(metrics, totals_.skipped, log_context())
                          : fmt::format("step {}: validation loss {}", metrics.step,
                                        format_fixed(metrics.loss, 4)));
  if (!finite) tell("warning: " + nonfinite_validation(totals_));
}

}  // namespace fsdp::tools
