// Where a run goes on: which checkpoint --resume means, with what configuration, and whether that
// is still the same computation. Next: run_checkpoints.h, read_checkpoint.h. Not here: reading the
// state (read_checkpoint.h).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/checkpoint/manifest.h"
#include "tools/config/config.h"
#include "tools/launch/launcher_environment.h"
#include "tools/launch/option_field.h"

namespace fsdp::tools {

// What the user said.
struct ResumeRequest {
  std::string from;           // --resume: a run directory, a checkpoint, "auto", or "" (none)
  bool with_changes = false;  // --resume-with-changes
  bool from_scratch = false;  // --restart-from-scratch: where no checkpoint is left, at step 1
  std::filesystem::path config_file;        // --config
  std::vector<config::Override> overrides;  // --set and its short forms
  // Checkpoints that turned out damaged when they were read, and what is wrong with them.
  std::map<std::filesystem::path, std::string> damaged = {};
  StartsBefore before = {};  // with the same files
};

struct ResumePlan {
  config::TrainConfig config;
  std::string run;  // id of the run in `run_directory`; "": it has none yet
  // The folder that the run goes on in; empty: a fresh run, which makes its own.
  std::filesystem::path run_directory;
  std::filesystem::path checkpoint;   // empty: a fresh start
  std::optional<Manifest> manifest;   // of `checkpoint`
  std::vector<std::string> notes;     // what the user should know, a line each
  std::vector<std::string> warnings;  // and what was lost
  bool finished = false;              // there is nothing left to do
  std::string gave_up;                // why it has not ended well, where it is finished; "": it has
  bool falls_back = false;            // where the checkpoint is damaged, the one before it is meant
};

// Without a request: the configuration alone. Error when the request cannot be met; of a run that
// goes on, what the system refuses is the machine's.
ResumePlan plan_resume(const ResumeRequest& request);

// The paths of a stored configuration are those of the folder that the run was started in; what is
// typed now is of this one.
void keep_paths(config::TrainConfig& config, const std::filesystem::path& started_in);
// Relative paths are then those of `folder`, but for what is typed.
void put_paths_in(config::TrainConfig& config, const std::filesystem::path& folder);

// Error for checkpoints of other programs, with what to do about them.
void refuse_foreign(const std::filesystem::path& folder);

// What is different, "key: old -> new"; `refused`: with which the run would compute something else.
struct ConfigChange {
  std::string key, before, after;
  bool refused = false;
  OnResume on_resume = OnResume::kRefused;
};
std::vector<ConfigChange> config_changes(const config::TrainConfig& before,
                                         const config::TrainConfig& after);

// Error when the data or tokenizer are not those of the checkpoint, unless changes are accepted;
// then one line for each difference.
std::vector<std::string> compare_data(const std::map<std::string, std::string>& before,
                                      const std::map<std::string, std::string>& now,
                                      bool with_changes);

}  // namespace fsdp::tools
