// Contract: tools/report/run_state.h.
#include "tools/report/run_state.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/io/file.h"
#include "core/io/json.h"
#include "tools/launch/backend_choice.h"
#include "tools/launch/status.h"
#include "tools/report/run_costs.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

constexpr double kSilence = 60;  // seconds; a run that lives touches progress.json every two

// Unix time; 0: there is no such file.
double written_at(const fs::path& file) {
  struct stat about {};
  if (::stat(file.c_str(), &about) != 0) return 0;
  return static_cast<double>(about.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(about.st_mtim.tv_nsec);
}

// Who has the lock of the directory (tools/checkpoint/run_folder.cpp); "": nobody.
std::string holder_of(const fs::path& run_directory) {
  const fs::path file = run_directory / "run.lock";
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return "";
  const bool held = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  if (!held) return "";
  const std::string text = read_file(file);
  return text.empty() ? "a process that has not said who it is" : text;
}

// Whether the last one that had the lock ran on this host, so that nobody has it who could.
bool was_here(const fs::path& run_directory) {
  const fs::path file = run_directory / "run.lock";
  return is_there(file) &&
         read_file(file).find(fmt::format(" on {} since", host_name())) != std::string::npos;
}

}  // namespace

std::string_view name_of(RunState state) {
  constexpr std::array<std::string_view, 5> kNames = {"ended", "failed", "running", "hung",
                                                      "killed"};
  return kNames[static_cast<size_t>(state)];
}

std::optional<EndNote> end_of_run(const fs::path& run_directory) {
  const fs::path file = run_directory / "metrics.json";
  if (!is_there(file)) return read_end_note(run_directory);
  EndNote note = {.time = written_at(file), .status = 0, .cause = "done"};
  try {
    const Json json = read_json_file(file);
    const Json* const ended = json.find("ended");
    if (ended && ended->is_object()) {
      note.status = ended->value("status", 0);
      note.cause = ended->value("reason", "");
    }
  } catch (const SystemError&) {
    throw;
  } catch (const std::exception&) {
    note.cause = "its metrics.json cannot be read";
  }
  return note;
}

std::string only_host_of(const fs::path& run_directory) {
  try {
    const auto hosts =
        read_json_file(run_directory / "run_args.json").at("hosts").get<std::vector<std::string>>();
    const bool one = std::ranges::all_of(hosts, [&](const auto& h) { return h == hosts[0]; });
    return one && !hosts.empty() ? hosts[0] : "";
  } catch (const std::exception&) {  // not there, or cut
    return "";
  }
}

RunCondition condition_of(const fs::path& run_directory, double now) {
  RunCondition out = {
      .end = end_of_run(run_directory), .holder = holder_of(run_directory), .silent_s = -1};
  const bool done = is_there(run_directory / "metrics.json");
  const double ended = written_at(run_directory / (done ? "metrics.json" : kEndNote));
  if (!out.holder.empty() && ended < written_at(run_directory / "run.lock"))
    out.end.reset();  // of the start before, which this one removes when it has set itself up
  const double seen = written_at(run_directory / "progress.json");
  // One that is older than the lock is of the start before: this one is in its set-up.
  if (seen > 0 && (out.holder.empty() || seen >= written_at(run_directory / "run.lock")))
    out.silent_s = std::max(now - seen, 0.0);
  const bool lives = !out.holder.empty() ||
                     (out.silent_s >= 0 && out.silent_s < kSilence && !was_here(run_directory));
  if (out.end)
    out.state =
        done && out.end->status != status::kGaveUp ? RunState::kEnded : RunState::kFailed;
  else if (lives)
    out.state = out.silent_s > kSilence ? RunState::kSilent : RunState::kRunning;
  return out;
}

bool is_run_folder(const fs::path& folder) {
  return is_there(folder / "config.yaml") &&
         (is_there(folder / "run_args.json") || is_there(folder / "metrics.json") ||
          is_there(folder / "metrics.jsonl"));
}

}  // namespace fsdp::tools
