// The files of a run's directory, read back: the one place that opens them, for a run that has
// ended, continues or died. Read next: run_status.h. Not here: writing them (run_directory.h,
// metrics.h, run_costs.h), the curves of a page (tools/page/run_log.h), going on from a checkpoint
// (tools/checkpoint/resume.h).
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "tools/launch/end_note.h"
#include "tools/report/run_directory.h"
#include "tools/report/train_totals.h"

namespace fsdp::tools {

// ---- one file ----

// `use` gets the file's JSON, where the file exists. `damaged` gets the reason why a file that is
// cut, is being written or has another shape says nothing. What the system refuses is an error.
void read_part(const std::filesystem::path& file, const std::function<void(const Json&)>& use,
               const std::function<void(const std::string& why)>& damaged);
// The same; null for a file that does not exist or says nothing.
Json part_of(const std::filesystem::path& file);

// "train.lr" -> "0.0001", of a config.yaml.
std::map<std::string, std::string> read_settings(const std::filesystem::path& file);
// The number at a path such as "/memory/ledger/total"; none when it is absent or null.
std::optional<double> number_at(const Json& json, const std::string& path);
// The text of a key; "" when it is absent or no text.
std::string text_at(const Json& json, std::string_view key);

// Whether the folder is the directory of a run, whatever became of the run.
bool is_run_folder(const std::filesystem::path& folder);

// ---- what it was and came to, for comparisons ----

struct FinishedRun {
  std::filesystem::path folder;
  std::map<std::string, std::string> settings;  // of config.yaml: "train.lr" -> "0.0001"
  Json metrics;                                 // metrics.json
  std::string state = {};  // "running", "killed", "failed": it has no metrics.json; "": it has
};
// Error when the folder is not there or is not the directory of a run that has ended.
FinishedRun read_finished_run(const std::filesystem::path& folder);
// The same of any run. What is known at its end alone is missing in the metrics of one that has not
// ended; the rest is of its last logged step.
FinishedRun read_run(const std::filesystem::path& folder);

// ---- which run it is and how far, for a run that continues ----

// Files that are missing or were cut say less, and never keep a run from going on.
struct RunRecord {
  std::string id;                 // of the run, wherever its directory is moved; "": not known
  std::string working_directory;  // that it was started in; "": not known
  CheckpointOfRun origin;         // what this start of it went on from; step 0: nothing
  // Its last complete checkpoint, noted beside the checkpoints when that was on the disk.
  std::optional<CheckpointOfRun> last;

  // Of metrics.json, which is written at the end of the run.
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

// ---- whether it lives ----

enum class RunState {
  kEnded,    // it was done, or told to stop
  kFailed,   // an error, which it has noted
  kRunning,  // a process has its directory
  kSilent,   // the same, but for a minute it has shown no sign of life
  kKilled,   // no process has it, and the run has not ended
};
std::string_view name_of(RunState state);  // "ended", "failed", "running", "hung", "killed"

struct RunCondition {
  RunState state = RunState::kKilled;
  std::optional<EndNote> end = {};  // of a run that has ended or failed
  std::string holder = {};          // "process 4711 on node1 since ..."; "": nobody
  double silent_s = 0;              // since the last sign of life; < 0: none is known
};
// `now`: Unix time.
RunCondition condition_of(const std::filesystem::path& run_directory, double now);
// What metrics.json or end.json says; none: neither exists.
std::optional<EndNote> end_of_run(const std::filesystem::path& run_directory);
// Where its last start was, by run_args.json; "": on several hosts, or not known.
std::string only_host_of(const std::filesystem::path& run_directory);

}  // namespace fsdp::tools
