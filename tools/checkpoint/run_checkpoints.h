// The checkpoints of one run: when they are written, what they hold besides the session's state,
// which ones are kept, and which one is the best. A run directory belongs to one run at a time.
// Next: write_checkpoint.h. Not here: going on from one (resume.h).
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/checkpoint/manifest.h"
#include "tools/config/config.h"
#include "tools/train/session.h"

namespace fsdp::tools {

// "step-<n>" folders, by n. A folder without a manifest is none: it is incomplete.
std::map<int64_t, std::filesystem::path> checkpoints_in(const std::filesystem::path& folder);
// Whether the folder is empty, or has no more in it than a run that was killed before it had
// written its first file.
bool is_beginning_of_run(const std::filesystem::path& folder);
// Where a run keeps them.
std::filesystem::path checkpoint_folder(const config::TrainConfig& config,
                                        const std::filesystem::path& run_directory);

// For checkpoint.folder, which two runs may have been given. Error when it holds a checkpoint of a
// run whose directory is another one, and is still there.
void check_own_checkpoints(const config::TrainConfig& config,
                           const std::filesystem::path& run_directory);

// Of rank 0: takes the run directory for this process, and removes what a run that was killed has
// left unfinished in it. Error when another run has the directory. The lock ends with the process.
std::unique_ptr<FileLock> take_run_directory(const std::filesystem::path& run_directory,
                                             const std::filesystem::path& checkpoints);

// Error when a rank does not see a file that rank 0 makes in the folder: the ranks do not share a
// file system, and no rank could read what the others write. Collective.
void check_shared_folder(comm::Communicator& world, const std::filesystem::path& folder);

class RunCheckpoints {
 public:
  // `facts`: what is the same in all checkpoints of the run. `session` outlives this.
  RunCheckpoints(Session& session, const config::TrainConfig& config,
                 std::filesystem::path run_directory, Manifest facts);

  // Returns the folder. AgreedError when it cannot be written. Collective.
  std::filesystem::path write(const TrainProgress& progress);
  struct Best {
    int64_t step;
    double value;
  };
  const std::optional<Best>& best() const { return best_; }
  // For a run that goes on: from which checkpoint, with what metrics.
  void go_on(const std::filesystem::path& checkpoint, const std::map<std::string, double>& metrics);
  std::filesystem::path folder_of(int64_t step) const;
  // Of the last complete one; empty: there is none.
  std::string last() const { return last_; }

 private:
  std::filesystem::path write_judged(const TrainProgress& progress);
  void judge(const TrainProgress& progress);
  void remove_old(int64_t step) const;

  Session& session_;
  config::CheckpointSection config_;
  std::filesystem::path folder_;
  Manifest facts_;
  std::optional<Best> best_;
  std::string last_;
};

}  // namespace fsdp::tools
