// Contract: tools/checkpoint/run_checkpoints.h.
#include "tools/checkpoint/run_checkpoints.h"

#include <charconv>
#include <cmath>
#include <random>
#include <regex>

#include <unistd.h>

#include "comm/exchange.h"
#include "core/io/file.h"
#include "tools/checkpoint/owned_state.h"
#include "tools/checkpoint/write_checkpoint.h"
#include "tools/config/guests.h"
#include "tools/launch/backend_choice.h"
#include "tools/launch/launch.h"
#include "tools/report/result_files.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr const char* kLockName = "run.lock";

// The number in "step-12"; -1: it is no such name.
int64_t step_of(const std::string& name) {
  int64_t step = -1;
  if (!name.starts_with(kPrefix)) return -1;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  return error == std::errc() && rest == end ? step : -1;
}

// What AtomicFile and AtomicFolder make beside the names that a run writes; see core/io/file.cpp.
std::regex unfinished_names() {
  std::string results;
  for (const auto* files : config::guests_of<ResultFiles>()) {
    for (const std::string_view name : files->names) results += fmt::format("{}|", name);
  }
  for (size_t dot = 0; (dot = results.find('.', dot)) != results.npos; dot += 2) {
    results.insert(dot, 1, '\\');
  }
  return std::regex(R"(\.shared-[0-9a-f]+|)"  // of check_shared_folder
                    R"((\.shared-[0-9a-f]+|step-\d+|model|adapter|config\.yaml|run_args\.json|)"
                    R"(metrics\.jsonl?|skipped_rows\.jsonl|)" +
                    results +
                    R"(rings\.txt|ring\.rank\d+\.json|trace\.rank\d+\.json)\.\d+-\d+\.tmp)");
}

bool is_unfinished(const std::string& name) {
  static const std::regex kUnfinished = unfinished_names();
  return std::regex_match(name, kUnfinished);
}

void remove_unfinished(const fs::path& folder) {
  std::error_code unreadable;
  std::vector<fs::path> found;
  for (const auto& item : fs::directory_iterator(folder, unreadable)) {
    if (is_unfinished(item.path().filename().string())) found.push_back(item.path());
  }
  for (const fs::path& path : found) fs::remove_all(path, unreadable);
}

}  // namespace

std::map<int64_t, fs::path> step_folders_in(const fs::path& folder) {
  std::map<int64_t, fs::path> found;
  std::error_code unreadable;
  for (const auto& item : fs::directory_iterator(folder, unreadable)) {
    const int64_t step = step_of(item.path().filename().string());
    if (step >= 0 && item.is_directory(unreadable)) found[step] = item.path();
  }
  return found;
}

std::map<int64_t, fs::path> checkpoints_in(const fs::path& folder) {
  std::map<int64_t, fs::path> found = step_folders_in(folder);
  std::error_code unreadable;
  std::erase_if(found, [&](const auto& each) {
    return !fs::exists(each.second / kManifestName, unreadable);
  });
  return found;
}

bool is_beginning_of_run(const fs::path& folder) {
  std::error_code unreadable;
  for (const auto& item : fs::directory_iterator(folder, unreadable)) {
    const std::string name = item.path().filename().string();
    if (name != kLockName && !is_unfinished(name)) return false;
  }
  return true;
}

fs::path checkpoint_folder(const config::TrainConfig& config, const fs::path& run_directory) {
  const std::string& given = config.checkpoint.folder;
  return given.empty() ? run_directory / "checkpoints" : fs::path(given);
}

void check_own_checkpoints(const config::TrainConfig& config, const fs::path& run_directory) {
  if (config.checkpoint.folder.empty()) return;  // within the run directory
  for (const auto& [step, folder] : checkpoints_in(config.checkpoint.folder)) {
    std::string owner;
    try {
      owner = read_manifest(folder).run_directory;
    } catch (const Error&) {
      continue;  // damaged: who reads it says so
    }
    std::error_code unreadable;
    FSDP_CHECK(
        !fs::is_directory(owner, unreadable) || fs::equivalent(owner, run_directory, unreadable),
        "checkpoint.folder: {} has a checkpoint of another run ({}): give each run a folder",
        folder.string(), owner);
  }
}

bool validated_alike(const Manifest& before, const std::string& validation_hash,
                     int64_t eval_batches) {
  const auto text = before.data.find(kValidationTokens);
  const config::TrainConfig then = config::parse_config(before.config, kManifestName, {});
  return (text == before.data.end() ? "" : text->second) == validation_hash &&
         then.train.eval_batches == eval_batches;
}

RunLocks take_run_directory(const fs::path& run_directory, const fs::path& checkpoints) {
  RunLocks locks;
  const auto take = [&](const fs::path& folder, const char* busy) {
    locks.held.push_back(std::make_unique<FileLock>(
        folder / kLockName, fmt::format("process {} on {}", ::getpid(), host_name()), busy));
    const std::string& problem = locks.held.back()->problem();
    if (problem.empty() || !locks.note.empty()) return;
    locks.note = problem + ": nothing keeps another run out of this folder";
  };
  take(run_directory, "another run is using this run directory");
  const fs::path above = fs::absolute(checkpoints).lexically_normal().parent_path();
  std::error_code unreadable;
  if (!fs::equivalent(above, run_directory, unreadable)) {
    make_folders(checkpoints);
    take(checkpoints, "another run is using this checkpoint.folder");
  }
  remove_unfinished(run_directory);
  remove_unfinished(checkpoints);
  return locks;
}

void check_shared_folder(comm::Communicator& world, const fs::path& folder) {
  const std::string token = hex((uint64_t{std::random_device()()} << 32) | std::random_device()());
  const std::string name = ".shared-" + comm::from_first_rank(world, token);
  const bool first = world.rank() == 0;
  agree(world, [&] {
    if (first) write_file_atomically(folder / name, "");
  });
  std::error_code unreadable;
  const bool seen = fs::exists(folder / name, unreadable);
  const std::vector<int> all = comm::exchange_values(world, int{seen});
  if (first) fs::remove(folder / name, unreadable);
  for (int rank = 0; rank < world.size(); ++rank) {
    if (all[static_cast<size_t>(rank)] != 0) continue;
    throw AgreedError(fmt::format(
        "checkpoint.every: rank {} does not see what rank 0 writes to {}: checkpoints need a file "
        "system that all ranks share; checkpoint.folder or runtime.run_dir name another place",
        rank, folder.string()));
  }
}

RunCheckpoints::RunCheckpoints(Session& session, const config::TrainConfig& config,
                               fs::path run_directory, Manifest facts)
    : session_(session),
      config_(config.checkpoint),
      eval_batches_(config.train.eval_batches),
      folder_(checkpoint_folder(config, run_directory)),
      facts_(std::move(facts)) {
  agree(session.world(), [&] {
    if (session.world().rank() != 0) return;
    make_folders(folder_);
    check_own_checkpoints(config, run_directory);
  });
  check_shared_folder(session.world(), folder_);
  facts_.run_directory = fs::absolute(run_directory).lexically_normal().string();
  facts_.working_directory = fs::current_path().string();
  facts_.base_hash = hash_frozen(session);
  if (!config_.async) return;
  writers_ = session.world().duplicate("checkpoint");
  staging_.emplace(session);
}

fs::path RunCheckpoints::folder_of(int64_t step) const {
  return folder_ / fmt::format("{}{}", kPrefix, step);
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
      fmt::format("the best checkpoint so far, step {}, counts no more: ", best.step);
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

// The last ones stay, `step` among them, and the best. One that cannot be removed takes space; it
// is tried again with the next checkpoint.
std::vector<std::string> remove_old(const fs::path& folder, int64_t keep, int64_t step,
                                    int64_t best) {
  std::vector<std::string> problems;
  if (keep == 0) return problems;
  const std::map<int64_t, fs::path> all = checkpoints_in(folder);
  int64_t left = keep;
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    if (at->first > step) continue;
    if (left-- > 0 || best == at->first) continue;
    // Never half a checkpoint under the name of a whole one.
    std::error_code error;
    const fs::path gone = at->second.string() + fmt::format(".{}-0.tmp", ::getpid());
    fs::rename(at->second, gone, error);
    if (!error) fs::remove_all(gone, error);
    if (!error) continue;
    problems.push_back(
        fmt::format("{}: cannot be removed: {}", at->second.string(), error.message()));
  }
  return problems;
}

}  // namespace

RunCheckpoints::~RunCheckpoints() {
  if (thread_.joinable()) thread_.join();
}

void RunCheckpoints::start(const TrainTotals& totals) {
  FSDP_CHECK(!write_, "[checkpoint] start: a write has not been finished");
  write_ = std::make_unique<Write>();
  write_->best_before = best_;
  judge(totals);
  facts_.progress = totals;
  write_->facts = facts_;
  write_->best = best_;
  write_->written = {.step = totals.steps, .folder = folder_of(totals.steps), .warnings = {}};
  write_->is_there = last_ == write_->written.folder.string();
  done_ = false;
  const auto work = [this](comm::Communicator& world) {
    try {
      carry_out(world, *write_);
    } catch (...) {
      write_->error = std::current_exception();
    }
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
  const bool first = world.rank() == 0;
  const fs::path& folder = write.written.folder;
  if (!write.is_there) {
    agree(world, [&] {
      // There is one only where it could not be read, and an older one was taken instead.
      if (first) fs::remove_all(folder);
    });
    write_checkpoint(world, write.state, folder, write.facts);
  }
  if (!first) return;
  write.written.warnings =
      remove_old(folder_, config_.keep, write.written.step, write.best ? write.best->step : -1);
}

std::optional<RunCheckpoints::Written> RunCheckpoints::finish() {
  if (!write_) return {};
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
