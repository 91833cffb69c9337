// What a run goes on from, and what it leaves: checkpoints and the model.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "core/machine_error.h"
#include "models/config.h"
#include "tools/checkpoint/owned_state.h"
#include "tools/checkpoint/read_checkpoint.h"
#include "tools/launch/interrupt.h"
#include "tools/report/source_commit.h"
#include "tools/run/run_texts.h"
#include "tools/run/same_run.h"
#include "tools/run/training_run.h"

namespace fsdp::tools {

// That the run is the one that the checkpoint belongs to.
void TrainingRun::check_state() const {
  const Manifest& manifest = *plan_.manifest;
  check_same_run(
      {.model = model_,
       .adapter_dropout = session_->lora() ? session_->lora()->dropout : 0,
       .order_follows_ranks = config_.data.shuffle_rule == data::ShuffleRule::kTorch,
       .shape = config::step_shape(config_, rank_.world.size()),
       .before = config::step_shape(config::parse_config(manifest.config, kManifestName, {}),
                                    manifest.world_size),
       .model_before = manifest.model});
}

// The state of the checkpoint, on any number of ranks.
void TrainingRun::restore_state() {
  const Manifest& manifest = *plan_.manifest;
  const bool with_changes = options_.resume_with_changes;
  std::vector<std::string> differences;
  const uint64_t base = hash_frozen(*session_);
  agree(rank_.world, [&] {
    differences = compare_data(manifest.data, data_.hashes(), with_changes);
    const bool same_base = base == manifest.base_hash;
    FSDP_CHECK(with_changes || same_base,
               "--resume: the parameters that are not trained ({}) have other values than those "
               "that the checkpoint belongs to ({})",
               base_of(*session_), manifest.base_path);
    if (!with_changes) check_state();
  });
  read_state();
  durable_step_ = manifest.step();
  for (const std::string& line : differences) say("note: changed: " + line);
  say(fmt::format("resumed from {}: step {}", plan_.checkpoint.string(), manifest.step()));
  if (manifest.device != device()) {
    say(fmt::format("note: {} instead of {}: the run goes on up to rounding", device(),
                    manifest.device));
  }
  if (manifest.world_size != rank_.world.size()) {
    say(fmt::format("note: {} rank{} instead of {}: the run goes on {}", rank_.world.size(),
                    rank_.world.size() == 1 ? "" : "s", manifest.world_size,
                    config_.fsdp.options.fixed_order ? "bit for bit" : "up to rounding"));
  }
}

// Another model is the user's mistake. What goes wrong after that is the checkpoint's.
void TrainingRun::read_state() {
  std::optional<Checkpoint> checkpoint;
  const MissingState missing =
      options_.resume_with_changes ? MissingState::kZero : MissingState::kError;
  agree(rank_.world, [&] {
    checkpoint.emplace(plan_.checkpoint, config_.checkpoint.verify, config_.runtime.patience());
    check_tensors(*session_, *checkpoint, missing);
  });
  try {
    agree(rank_.world, [&] { restore(*session_, *checkpoint, missing); });
  } catch (const AgreedError& error) {
    if (!plan_.falls_back || error.cause() != Cause::kPerson) throw;
    throw DamagedCheckpoint(error.what());
  }
}

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
  if (plan_.manifest) {
    const std::string note = checkpoints_->go_on(plan_.checkpoint, *plan_.manifest);
    if (!note.empty()) say("note: " + note);
  }
  return *checkpoints_;
}

bool TrainingRun::writes_checkpoints() const {
  return !config_.checkpoint.interval().never() && !without_checkpoints_;
}

// Nobody has asked for those that a run writes by itself.
bool TrainingRun::needs_checkpoints() const {
  return config_.checkpoint.required && config_.checkpoint.every;
}

// What is wrong with their place is better known before the first step.
void TrainingRun::place_checkpoints() {
  if (!writes_checkpoints()) return;
  const config::CheckpointSection& section = config_.checkpoint;
  const bool asked =
      section.every || section.async || !section.folder.empty() || config_.train.rolls_back();
  const bool one_process = rank_.local_ranks == rank_.world.size();
  try {
    check_room();
    if (asked) checkpoints();
    if (!asked && !one_process) {
      check_shared_folder(rank_.world, directory_, kLatestName, config_.runtime.patience());
    }
  } catch (const AgreedError& error) {
    // Where a run goes on, its configuration was right, and the disk may have room later.
    const bool goes_on = config_.runtime.goes_on;
    check_room_of_model();
    if (asked) {
      throw AgreedError(error.what(), error.status(), goes_on ? Cause::kMachine : error.cause());
    }
    without_checkpoints_ = !goes_on;
    say(fmt::format("note: this run writes no checkpoints{}: {}", goes_on ? " for now" : "",
                    error.what()));
  }
}

void TrainingRun::check_room_of_model() {
  agree(rank_.world, [&] {
    if (!speaks()) return;
    const std::string missing =
        missing_room(directory_, 0, 0, static_cast<uint64_t>(saved_bytes()));
    if (!missing.empty() && config_.runtime.goes_on)
      throw MachineError("runtime.run_dir: " + missing);
    FSDP_CHECK(missing.empty(), "runtime.run_dir: {}", missing);
  });
}

void TrainingRun::check_room() {
  const uint64_t bytes = checkpoint_bytes(*session_);
  const std::filesystem::path folder = checkpoint_folder(config_, directory_);
  const int64_t beside = config_.checkpoint.folder.empty() ? saved_bytes() : 0;
  agree(rank_.world, config_.runtime.patience(), [&] {
    if (!speaks()) return;
    const int64_t done = plan_.manifest ? plan_.manifest->step() : 0;
    const auto there = is_folder(folder) ? checkpoints_in(folder).size() : 0;
    const int64_t count = checkpoints_to_come(config_.checkpoint, config_.train.steps - done,
                                              static_cast<int64_t>(there));
    const std::string missing = missing_room(folder, bytes, count, static_cast<uint64_t>(beside));
    FSDP_CHECK(missing.empty(), "checkpoint.every: {}", missing);
  });
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

// After the last step. A signal may have come while the checkpoint of that step was being written:
// where that has failed it is tried once more, because the run may be killed soon.
void TrainingRun::settle_checkpoint(const TrainTotals& totals) {
  watch_checkpoint(true);
  const bool saves = writes_checkpoints() || totals.signal == SIGUSR1;
  if (totals.signal == 0 || !saves || failed_checkpoint_.empty()) return;
  if (!start_checkpoint(totals)) return say("warning: " + failed_checkpoint_);
  watch_checkpoint(true);
}

RunEnd TrainingRun::end_of(const TrainTotals& totals) const {
  RunEnd end = {.status = status_after(totals.signal), .last_durable_step = durable_step_};
  if (totals.signal == 0) {
    const std::string nonfinite = failed_validation(config_, totals);
    if (!nonfinite.empty()) return {status::kGaveUp, nonfinite, durable_step_};
    return {status::kDone, "done", durable_step_};
  }
  end.reason = "stopped by " + reason_to_stop(totals.signal);
  if (end.status == status::kStartAgain && durable_step_ < totals.steps) {
    end.status = status::kNotDurable;
    end.reason += "; " + failed_checkpoint_;
  }
  return end;
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
    for (const std::string& warning : written->warnings) say("warning: " + warning);
    return true;
  } catch (const AgreedError& error) {
    failed_checkpoint_ = fmt::format("step {}: no checkpoint: {}", step, error.what());
    return false;
  }
}

// checkpoint.load_best: what is saved are the weights of the best checkpoint.
void TrainingRun::take_best(const TrainTotals& totals) {
  if (!config_.checkpoint.load_best || totals.signal != 0) return;
  const auto& best = checkpoints().best();
  if (!best) return say("note: checkpoint.load_best: no checkpoint has the value to judge it by");
  const auto folder = checkpoints_->folder_of(best->step);
  try {  // all of it before a weight is changed
    agree(rank_.world, [&] {
      if (!speaks()) return;
      const std::vector<std::string> problems =
          Checkpoint(folder, true, config_.runtime.patience()).verify_all();
      FSDP_CHECK(problems.empty(), "{}", problems.front());
    });
  } catch (const AgreedError& error) {
    return say(fmt::format("warning: checkpoint.load_best: {}; the model is that of the last step",
                           error.what()));
  }
  agree(rank_.world, [&] {
    Checkpoint checkpoint(folder, false, config_.runtime.patience());
    restore_weights(*session_, checkpoint);
  });
  say(fmt::format("the best checkpoint: step {}, {:.4f}", best->step, best->value));
}

void TrainingRun::save() {
  if (!config_.train.save) return;
  const PhaseScope phase(session_->phases(), "saving");
  const auto folder = directory_ / (session_->lora() ? "adapter" : "model");
  const IoPatience patience = config_.runtime.patience();
  for (int64_t retry = 0;; ++retry) {
    try {
      for (const std::string& warning : save_model(*session_, folder, saved_)) {
        say("warning: " + warning);
      }
      return;
    } catch (const AgreedError& error) {  // on all ranks
      if (error.cause() != Cause::kMachine || retry == patience.retries) throw;
    }
    std::this_thread::sleep_for(pause_before_retry(patience, retry));
  }
}

}  // namespace fsdp::tools
