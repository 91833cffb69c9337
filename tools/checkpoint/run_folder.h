// The folder of a run's checkpoints: what lies in it, whose they are, the locks that keep two runs
// apart, and whether all ranks see it. Next: run_checkpoints.h. Not here: what a run directory says
// about its run (tools/report/run_reader.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/io/file.h"
#include "tools/checkpoint/manifest.h"
#include "tools/config/config.h"

namespace fsdp::tools {

// "step-<n>" folders, by n. SystemError where the folder cannot be listed.
std::map<int64_t, std::filesystem::path> step_folders_in(const std::filesystem::path& folder);
// Those that have a manifest. A folder without one is incomplete.
std::map<int64_t, std::filesystem::path> checkpoints_in(const std::filesystem::path& folder);
// Whether the folder is empty, or has no more in it than a fresh volume, or than a run whose set-up
// was killed, or failed and could not remove what it had made.
bool is_beginning_of_run(const std::filesystem::path& folder);
// Where a run keeps them.
std::filesystem::path checkpoint_folder(const config::TrainConfig& config,
                                        const std::filesystem::path& run_directory);

// Why the checkpoint is not one of the run: it has the id of another or, where one of the two has
// none, it was written for a directory that is another one. "": it is the run's. `run`: its id; "":
// not known.
std::string foreign_to(const Manifest& manifest, const std::string& run,
                       const std::filesystem::path& run_directory);
// For checkpoint.folder, which two runs may have been given: error when it holds a checkpoint of
// another run. Returns a note where that cannot be told for certain; "": it can.
std::string check_own_checkpoints(const config::TrainConfig& config, const std::string& run,
                                  const std::filesystem::path& run_directory);

// Removes what a write that was killed, or a removal that failed, has left in a folder that this
// process has the lock of.
void remove_unfinished(const std::filesystem::path& folder);

struct RunLocks {
  std::vector<std::unique_ptr<FileLock>> held;
  std::string note;  // why they keep nobody out; "": they do
};
struct LockWait {
  std::chrono::milliseconds limit{0};
  std::function<void(const std::string& line)> say = {};  // gets what is waited for, once
};
// For a run that begins anew: what is left of its checkpoints goes into a folder of its own below,
// which is returned; empty: nothing is left.
std::filesystem::path set_aside_checkpoints(const std::filesystem::path& checkpoints);
// Of rank 0: takes the run directory, and the folder of its checkpoints where that lies elsewhere,
// for this process; removes what a run that was killed has left unfinished there. Error when
// another run still has one of them after the wait. Locks end with the process.
RunLocks take_run_directory(const std::filesystem::path& run_directory,
                            const std::filesystem::path& checkpoints, const LockWait& wait = {});

// Error when a rank does not see a file that rank 0 makes in the folder: the ranks do not share a
// file system, and no rank could read what the others write. A host of a network's file system may
// know of a new name late (nfs(5): acdirmax, 60 s), so a rank looks for `limit`. Collective.
constexpr std::chrono::milliseconds kLatestName(70'000);
void check_shared_folder(comm::Communicator& world, const std::filesystem::path& folder,
                         std::chrono::milliseconds limit = kLatestName,
                         const IoPatience& patience = {});
// Looks until the limit; the last error of the system where the last look had one.
bool sees_within(std::chrono::milliseconds limit, const std::function<bool()>& sees);

}  // namespace fsdp::tools
