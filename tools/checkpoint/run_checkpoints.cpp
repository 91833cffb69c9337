// Contract: tools/checkpoint/run_checkpoints.h.
#include "tools/checkpoint/run_checkpoints.h"

#include <chrono>
#include <cmath>

#include <unistd.h>

#include "comm/exchange.h"
#include "comm/rank_place.h"
#include "core/io/file.h"
#include "tools/checkpoint/owned_state.h"
#include "tools/checkpoint/run_folder.h"
#include "tools/launch/launch.h"
#include "tools/report/run_reader.h"

namespace fsdp::tools {

namespace fs = std::filesystem;

bool validated_alike(const Manifest& before, const std::string& validation_hash,
                     int64_t eval_batches) {
  const auto text = before.data.find(kValidationTokens);
  const config::TrainConfig then = config::parse_config(before.config, kManifestName, {});
  return (text == before.data.end() ? "" : text->second) == validation_hash &&
         then.train.eval_batches == eval_batches;
}

uint64_t checkpoint_bytes(Session& session) {
  uint64_t mine = 0, all = 0;
  for (const StatePartOwned& part : owned_state(session)) mine += part.values.bytes();
  for (const uint64_t of_rank : comm::exchange_values(session.world(), mine)) all += of_rank;
  return all;
}

int64_t checkpoints_to_come(const config::CheckpointSection& config, int64_t steps, int64_t there) {
  constexpr int64_t kWithoutLimit = 2;
  const int64_t every = config.interval().steps;
  const int64_t written = every > 0 ? (steps + every - 1) / every : INT64_MAX;
  const int64_t most = config.keep > 0 ? config.keep + 1 : kWithoutLimit;
  return std::max<int64_t>(std::min(written, most - there), 1);
}

RunCheckpoints::RunCheckpoints(Session& session, const config::TrainConfig& config,
                               fs::path run_directory, Manifest facts)
    : session_(session),
      config_(config.checkpoint),
      eval_batches_(config.train.eval_batches),
      patience_(config.runtime.patience()),
      run_directory_(std::move(run_directory)),
      folder_(checkpoint_folder(config, run_directory_)),
      facts_(std::move(facts)) {
  agree(session.world(), [&] {
    if (session.world().rank() != 0) return;
    patiently(patience_, [&] {
      make_folders(folder_);
      check_own_checkpoints(config, facts_.run, run_directory_);
    });
  });
  check_shared_folder(session.world(), folder_, kLatestName, patience_);
  facts_.run_directory = fs::absolute(run_directory_).lexically_normal().string();
  facts_.working_directory = fs::current_path().string();
  facts_.base_hash = hash_frozen(session);
  if (!config_.async) return;
  writers_ = session.world().duplicate(comm::kCheckpointGroup);
  staging_.emplace(session);
}

fs::path RunCheckpoints::folder_of(int64_t step) const {
  return folder_ / fmt::format("step-{}", step);
}

// A loss is compared with losses of the same kind, of the same text.
bool RunCheckpoints::judged_alike(const Manifest& before) const {
  const config::TrainConfig then = config::parse_config(before.config, kManifestName, {});
  if (then.checkpoint.best != config_.best) return false;
  if (config_.best != config::BestMetric::kValidationLoss) return true;
  const auto text = facts_.data.find(kValidationTokens);
  return validated_alike(before, text == facts_.data.end() ? "" : text->second, eval_batches_);
}

std::string RunCheckpoints::go_on(const fs::path& checkpoint, const Manifest& manifest) {
  std::error_code unreadable;
  // A new run that begins at another run's checkpoint has none of its own yet, and no best one.
  if (!fs::equivalent(checkpoint.parent_path(), folder_, unreadable)) return "";
  last_ = (folder_ / checkpoint.filename()).string();
  const auto step = manifest.metrics.find("best_step"), value = manifest.metrics.find("best_value");
  if (step == manifest.metrics.end() || value == manifest.metrics.end()) return "";
  const Best best = {static_cast<int64_t>(step->second), value->second};
  const std::string what =
      fmt::format("the best checkpoint so far, step {}, no longer counts: ", best.step);
  if (!judged_alike(manifest)) {
    return what + "it was judged by another loss or text";
  }
  if (!fs::exists(folder_of(best.step) / kManifestName, unreadable)) {
    return what + folder_of(best.step).string() + " is gone";
  }
  best_ = best;
  return "";
}

void RunCheckpoints::judge(const TrainTotals& totals) {
  const double train_loss = totals.recent_losses.empty() ? NAN : totals.train_loss();
  facts_.metrics = {{"train_loss", train_loss}};
  std::optional<double> value;
  if (totals.validation_loss) facts_.metrics["validation_loss"] = *totals.validation_loss;
  if (config_.best == config::BestMetric::kTrainLoss) value = train_loss;
  if (config_.best == config::BestMetric::kValidationLoss && totals.validated_at == totals.steps) {
    value = totals.validation_loss;
  }
  if (value && std::isfinite(*value) && (!best_ || *value < best_->value)) {
    best_ = Best{totals.steps, *value};
  }
  if (!best_) return;
  facts_.metrics["best_step"] = static_cast<double>(best_->step);
  facts_.metrics["best_value"] = best_->value;
}

// Values that the writing thread needs; the thread that trains leaves them alone until finish().
struct RunCheckpoints::Write {
  Manifest facts;
  StateToWrite state;
  bool is_there = false;  // the run went on from this one, and its evaluation was still to come
  std::optional<Best> best_before, best;
  Written written;
  std::exception_ptr error;
};

namespace {

// Why it cannot be removed; "": it is. Its name is gone for good before anything that it holds:
// never half a checkpoint under the name of a whole one, also when the power goes.
std::string remove_checkpoint(const fs::path& checkpoint, const IoPatience& patience) {
  const fs::path gone = checkpoint.string() + fmt::format(".{}-0.tmp", ::getpid());
  std::error_code error;
  fs::rename(checkpoint, gone, error);
  if (!error) {
    try {
      patiently(patience, [&] { sync_file(checkpoint.parent_path()); });
    } catch (const SystemError& refused) {
      fs::rename(gone, checkpoint, error);
      return refused.what();
    }
    try {
      patiently(patience, [&] { fs::remove_all(gone); });
    } catch (const std::exception& refused) {
      return refused.what();
    }
  }
  return error ? error.message() : "";
}

// The last ones stay, `step` among them, and the best. One that cannot be removed takes space; it
// is tried again with the next checkpoint.
std::vector<std::string> remove_old(const fs::path& folder, const IoPatience& patience,
                                    int64_t keep, int64_t step, int64_t best) {
  std::vector<std::string> problems;
  if (keep == 0) return problems;
  std::map<int64_t, fs::path> all;
  try {
    all = patiently(patience, [&] { return checkpoints_in(folder); });
  } catch (const SystemError& error) {
    return {fmt::format("{}: older checkpoints stay", error.what())};
  }
  int64_t left = keep;
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    if (at->first > step) continue;
    if (left-- > 0 || best == at->first) continue;
    const std::string why = remove_checkpoint(at->second, patience);
    if (why.empty()) continue;
    problems.push_back(fmt::format("{}: cannot be removed: {}", at->second.string(), why));
  }
  try {  // the rest of a removal that failed halfway, now or at an earlier checkpoint
    patiently(patience, [&] { remove_unfinished(folder); });
  } catch (const SystemError& error) {
    problems.emplace_back(error.what());
  }
  return problems;
}

}  // namespace

RunCheckpoints::~RunCheckpoints() {
  if (thread_.joinable()) thread_.join();
}

namespace {

// Of the thread that trains, unless it is in the phase already.
struct CheckpointPhase {
  explicit CheckpointPhase(const Session& session)
      : phase(
            session.phases() && session.phases()->innermost() != kName ? session.phases() : nullptr,
            kName) {}
  static constexpr const char* kName = "checkpoint";
  PhaseScope phase;
};

}  // namespace

void RunCheckpoints::start(const TrainTotals& totals) {
  FSDP_CHECK(!write_, "[checkpoint] start: a write has not been finished");
  const CheckpointPhase phase(session_);
  write_ = std::make_unique<Write>();
  write_->best_before = best_;
  judge(totals);
  facts_.progress = totals;
  write_->facts = facts_;
  write_->best = best_;
  write_->written = {.step = totals.steps, .folder = folder_of(totals.steps)};
  write_->is_there = last_ == write_->written.folder.string();
  done_ = false;
  const auto work = [this](comm::Communicator& world) {
    const auto began = std::chrono::steady_clock::now();
    try {
      carry_out(world, *write_);
    } catch (...) {
      write_->error = std::current_exception();
    }
    write_->written.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    write_->state = {};
    done_ = true;
  };
  if (!writers_) {
    write_->state = state_to_write(session_);
    return work(session_.world());
  }
  write_->state = staging_->copy();
  thread_ = std::thread([this, work] { work(*writers_); });
}

void RunCheckpoints::carry_out(comm::Communicator& world, Write& write) const {
  if (!write.is_there) {
    // A folder of that name is one that could not be read, and an older one was taken instead. It
    // stays until the new one is on the disk.
    write_checkpoint(world, write.state, write.written.folder, write.facts, patience_);
  }
  if (world.rank() != 0) return;
  write.written.warnings = remove_old(folder_, patience_, config_.keep, write.written.step,
                                      write.best ? write.best->step : -1);
  try {
    const CheckpointOfRun last = {write.written.step, write.written.folder.string(), facts_.run};
    patiently(patience_, [&] { note_last_checkpoint(run_directory_, last); });
  } catch (const Error& error) {  // the checkpoint is there all the same
    write.written.warnings.push_back(error.what());
  }
}

std::optional<RunCheckpoints::Written> RunCheckpoints::finish() {
  if (!write_) return {};
  const CheckpointPhase phase(session_);  // also of an error of the thread
  if (thread_.joinable()) thread_.join();
  const std::unique_ptr<Write> write = std::move(write_);
  if (write->error) {
    best_ = write->best_before;
    std::rethrow_exception(write->error);
  }
  last_ = write->written.folder.string();
  return write->written;
}

int64_t RunCheckpoints::step_of_write() const { return write_ ? write_->written.step : -1; }

RunCheckpoints::Written RunCheckpoints::write(const TrainTotals& totals) {
  start(totals);
  return *finish();
}

}  // namespace fsdp::tools
