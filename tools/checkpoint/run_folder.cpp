// Contract: tools/checkpoint/run_folder.h.
#include "tools/checkpoint/run_folder.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <random>
#include <regex>
#include <thread>

#include <unistd.h>

#include "comm/exchange.h"
#include "tools/config/guests.h"
#include "tools/launch/backend_choice.h"
#include "tools/launch/launch.h"
#include "tools/report/result_files.h"
#include "tools/report/run_directory.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::string_view kPrefix = "step-";
constexpr const char* kLockName = "run.lock";
constexpr milliseconds kLookAgain(200);

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
                    R"(last\.json|progress\.json|metrics\.jsonl?|skipped_rows\.jsonl|)"
                    R"(end\.json|failures\.jsonl|)" +
                    results +
                    R"(rings\.txt|ring\.rank\d+\.json|trace\.rank\d+\.json)\.\d+-\d+\.tmp)");
}

bool is_unfinished(const std::string& name) {
  static const std::regex kUnfinished = unfinished_names();
  return std::regex_match(name, kUnfinished);
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::localtime_r(&now, &parts);
  char text[32] = "";
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

// The lock, when no other process has it any more.
std::unique_ptr<FileLock> take_lock(const fs::path& folder, const char* busy,
                                    const LockWait& wait) {
  const std::string me =
      fmt::format("process {} on {} since {}", ::getpid(), host_name(), now_text());
  const Clock::time_point limit = Clock::now() + wait.limit;
  for (bool told = false;; told = true) {
    auto lock = std::make_unique<FileLock>(folder / kLockName, me);
    if (lock->holder().empty()) return lock;
    const std::string why =
        fmt::format("{}: {}: {}", (folder / kLockName).string(), busy, lock->holder());
    // The other job may be one that dies slowly: another start may find its lock free.
    if (Clock::now() >= limit) throw AgreedError(why, status::kFailed, Cause::kMachine);
    if (!told && wait.say) {
      wait.say(fmt::format("note: {}; waiting for its end for up to {} s (runtime.lock_wait_s)",
                           why, wait.limit.count() / 1000));
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

}  // namespace

void remove_unfinished(const fs::path& folder) {
  std::error_code ignored;
  for (const std::string& name : names_in(folder)) {
    if (is_unfinished(name)) fs::remove_all(folder / name, ignored);
  }
}

bool sees_within(milliseconds limit, const std::function<bool()>& sees) {
  const Clock::time_point end = Clock::now() + limit;
  for (;;) {
    const bool last = Clock::now() >= end;
    try {
      if (sees()) return true;
    } catch (const SystemError&) {  // not seen
      if (last) throw;
    }
    if (last) return false;
    std::this_thread::sleep_for(kLookAgain);
  }
}

std::map<int64_t, fs::path> step_folders_in(const fs::path& folder) {
  std::map<int64_t, fs::path> found;
  for (const std::string& name : names_in(folder)) {
    const int64_t step = step_of(name);
    if (step >= 0 && is_folder(folder / name)) found[step] = folder / name;
  }
  return found;
}

std::map<int64_t, fs::path> checkpoints_in(const fs::path& folder) {
  std::map<int64_t, fs::path> found = step_folders_in(folder);
  std::erase_if(found, [](const auto& each) { return !is_there(each.second / kManifestName); });
  return found;
}

bool is_beginning_of_run(const fs::path& folder) {
  const auto all_of = [](const fs::path& place, const auto& allowed) {
    const std::vector<std::string> names = names_in(place);
    return std::all_of(names.begin(), names.end(), allowed);
  };
  return all_of(folder, [&](const std::string& name) {
    // What a set-up that failed writes beside the files that make a folder a run's.
    if (name == "checkpoints") return all_of(folder / name, is_unfinished);
    return name == kLockName || name == "progress.json" || name == "skipped_rows.jsonl" ||
           is_unfinished(name) || is_name_of_volume(name);
  });
}

fs::path checkpoint_folder(const config::TrainConfig& config, const fs::path& run_directory) {
  const std::string& given = config.checkpoint.folder;
  return given.empty() ? run_directory / "checkpoints" : fs::path(given);
}

std::string foreign_to(const Manifest& manifest, const std::string& run,
                       const fs::path& run_directory) {
  const fs::path& owner = manifest.run_directory;
  if (!run.empty() && !manifest.run.empty()) {
    if (run == manifest.run) return "";
    return fmt::format("of another run ({}, of {})", manifest.run, owner.string());
  }
  std::error_code unreadable;
  const bool same = owner == fs::absolute(run_directory).lexically_normal() ||
                    fs::equivalent(owner, run_directory, unreadable);
  // Without an id on either side an owner that is gone may have been this run, moved.
  const bool may_be = manifest.run.empty() && !fs::is_directory(owner, unreadable);
  return same || may_be ? "" : fmt::format("of another run ({})", owner.string());
}

std::string check_own_checkpoints(const config::TrainConfig& config, const std::string& run,
                                  const fs::path& run_directory) {
  if (config.checkpoint.folder.empty()) return "";  // within the run directory
  std::string note;
  for (const auto& [step, folder] : checkpoints_in(config.checkpoint.folder)) {
    std::string problem;
    try {
      const Manifest manifest = read_manifest(folder);
      problem = foreign_to(manifest, run, run_directory);
      const bool same = manifest.run_directory == fs::absolute(run_directory).lexically_normal();
      if (problem.empty() && !same && (run.empty() || manifest.run.empty())) {
        note = fmt::format("{}: taken for a checkpoint of this run, though it was written for {}",
                           folder.string(), manifest.run_directory);
      }
    } catch (const SystemError&) {
      throw;
    } catch (const OtherFormat& error) {
      fail("checkpoint.folder: {}", error.what());
    } catch (const Error&) {
      continue;  // damaged: who reads it says so
    }
    FSDP_CHECK(problem.empty(), "checkpoint.folder: {} has a checkpoint {}: give each run a folder",
               folder.string(), problem);
  }
  return note;
}

fs::path set_aside_checkpoints(const fs::path& checkpoints) {
  std::vector<std::string> left;
  if (is_folder(checkpoints)) {
    for (const auto& [step, folder] : step_folders_in(checkpoints))
      left.push_back(folder.filename());
  }
  if (left.empty()) return {};
  fs::path aside;
  for (int number = 1; aside.empty() || is_there(aside); ++number) {
    aside = checkpoints / fmt::format("before-{}", number);
  }
  make_folders(aside);
  for (const std::string& name : left) fs::rename(checkpoints / name, aside / name);
  return aside;
}

RunLocks take_run_directory(const fs::path& run_directory, const fs::path& checkpoints,
                            const LockWait& wait) {
  RunLocks locks;
  const auto take = [&](const fs::path& folder, const char* busy) {
    locks.held.push_back(take_lock(folder, busy, wait));
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

void check_shared_folder(comm::Communicator& world, const fs::path& folder, milliseconds limit,
                         const IoPatience& patience) {
  const std::string token = hex((uint64_t{std::random_device()()} << 32) | std::random_device()());
  const std::string name = ".shared-" + comm::from_first_rank(world, token);
  const bool first = world.rank() == 0;
  const auto look = [&] {
    // What asks for a name alone may be answered from a memory of its absence.
    const std::vector<std::string> names = names_in(folder);
    return std::binary_search(names.begin(), names.end(), name);
  };
  bool seen = false;
  std::optional<AgreedError> failed;
  try {
    agree(world, patience, [&] {
      if (first) write_file_atomically(folder / name, "");
    });
    // A wait for the file system, whatever runtime.timeout_s is.
    agree(world, [&] {
      seen = world.rings()->progress()->during([&] { return sees_within(limit, look); });
    });
  } catch (const AgreedError& error) {
    failed = error;
  }
  std::error_code ignored;
  if (first) fs::remove(folder / name, ignored);
  if (failed) throw AgreedError(*failed);
  const std::vector<int> all = comm::exchange_values(world, int{seen});
  const auto blind = std::find(all.begin(), all.end(), 0) - all.begin();
  if (blind == world.size()) return;
  const std::vector<std::string> hosts = world.exchange(host_name());
  throw AgreedError(fmt::format(
      "checkpoint.every: rank {} on {} does not see what rank 0 on {} writes to {}: checkpoints "
      "need "
      "a file system that all ranks share; checkpoint.folder or runtime.run_dir name another place",
      blind, hosts[static_cast<size_t>(blind)], hosts[0], folder.string()));
}

}  // namespace fsdp::tools
