// Whether the run of a directory goes on, has ended, and how: also of a run that was killed and
// says nothing of it. Read next: run_status.h, which says more of it. Not here: where it may go on
// (tools/checkpoint).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "tools/launch/end_note.h"

namespace fsdp::tools {

enum class RunState {
  kEnded,    // it was done, or told to stop
  kFailed,   // an error, which it has noted
  kRunning,  // a process has its directory
  kSilent,   // the same, but for a minute it has shown no sign of life
  kKilled,   // none has, and the run has not ended
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
// What metrics.json or end.json says; none: neither is there.
std::optional<EndNote> end_of_run(const std::filesystem::path& run_directory);

// Where its last start was, by run_args.json; "": on several hosts, or not known.
std::string only_host_of(const std::filesystem::path& run_directory);

// Whether the folder is that of a run, whatever became of it.
bool is_run_folder(const std::filesystem::path& folder);

}  // namespace fsdp::tools
