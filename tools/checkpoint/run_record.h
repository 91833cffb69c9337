// What a run directory says about its run: which run it is, where it was started, what it went on
// from, its last complete checkpoint, how it ended. Files that are missing or were cut say less,
// and never keep a run from going on. Read next: resume.h. Not here: the checkpoints themselves
// (run_folder.h), writing run_args.json (tools/report/run_directory.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/report/run_directory.h"
#include "tools/report/train_totals.h"

namespace fsdp::tools {

struct RunRecord {
  std::string id;                 // of the run, wherever its directory is moved; "": not known
  std::string working_directory;  // that it was started in; "": not known
  CheckpointOfRun origin;         // what this start of it went on from; step 0: nothing
  // Its last complete checkpoint, noted beside the checkpoints when that was on the disk.
  std::optional<CheckpointOfRun> last;

  // ---- metrics.json, which is written at the end of the run ----
  bool ended = false;
  bool interrupted = false;  // by a signal
  std::string gave_up;       // why, where it has ended with status::kGaveUp
  int64_t steps = 0;
  double epochs = 0;
  BatchRanges left_out;  // by rollbacks

  std::vector<std::string> notes;  // what cannot be read
};

RunRecord read_run_record(const std::filesystem::path& run_directory);

// Durably, in checkpoints/last.json of the run directory.
void note_last_checkpoint(const std::filesystem::path& run_directory,
                          const CheckpointOfRun& checkpoint);

}  // namespace fsdp::tools
