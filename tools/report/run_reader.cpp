// Contract: tools/report/run_reader.h.
#include "tools/report/run_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include "core/io/file.h"
#include "core/io/odd_bytes.h"
#include "tools/launch/backend_choice.h"
#include "tools/launch/status.h"
#include "tools/report/metrics.h"
#include "tools/report/metrics_line.h"
#include "tools/report/run_costs.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.yaml";
constexpr const char* kArguments = "run_args.json";
constexpr const char* kMetrics = "metrics.json";
constexpr const char* kLog = "metrics.jsonl";
constexpr const char* kProgress = "progress.json";
constexpr const char* kLock = "run.lock";

void flatten(const YAML::Node& node, const std::string& path,
             std::map<std::string, std::string>& out) {
  if (!node.IsMap()) {
    YAML::Emitter text;
    text << YAML::Flow << node;
    out[path] = stand_ins_as_escapes(text.c_str());
    return;
  }
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    flatten(entry.second, path.empty() ? key : path + "." + key, out);
  }
}

Json metrics_so_far(const fs::path& folder) {
  const LogEnd log = read_log_end(folder / kLog);
  Json metrics = Json::object();
  const auto set = [&](const char* key, std::optional<double> value) {
    if (value) metrics[key] = *value;
  };
  set("steps", log.step);
  set("train_loss", log.loss);
  set("tokens_per_s", log.tokens_per_s);
  set("wall_time_s", log.wall_time_s);
  set("true_tokens", log.true_tokens);
  set("samples", log.samples);
  set("validation_loss", log.validation_loss);
  try {
    set("world_size", number_at(read_json_file(folder / kArguments), "/world_size"));
    const RunProgress progress = read_progress(folder / kProgress);
    visit_costs(progress.costs, [&](const char* key, auto value) { metrics[key] = value; });
    metrics["steps"] = std::max(progress.step, static_cast<int64_t>(log.step.value_or(0)));
    metrics["effective_share"] = progress.costs.effective_share(progress.wall_time_s);
  } catch (const Error&) {  // not there, or half of it is written
  }
  return metrics;
}

CheckpointOfRun checkpoint_from(const Json& json) {
  return {.step = json.at("step"), .path = json.value("path", ""), .run = json.value("run", "")};
}

fs::path last_file(const fs::path& run_directory) {
  return run_directory / "checkpoints" / "last.json";
}

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
  const fs::path file = run_directory / kLock;
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
  const fs::path file = run_directory / kLock;
  return is_there(file) &&
         read_file(file).find(fmt::format(" on {} since", host_name())) != std::string::npos;
}

}  // namespace

// ---------------------------------------------------------------------------- One file

void read_part(const fs::path& file, const std::function<void(const Json&)>& use,
               const std::function<void(const std::string& why)>& damaged) {
  if (!is_there(file)) return;
  try {
    use(read_json_file(file));
  } catch (const SystemError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string what = error.what();
    const bool named = what.starts_with(file.string());
    damaged(named ? what : fmt::format("{}: {}", file.string(), what));
  }
}

Json part_of(const fs::path& file) {
  Json out;
  read_part(
      file, [&](const Json& json) { out = json; }, [](const std::string&) {});
  return out;
}

std::map<std::string, std::string> read_settings(const fs::path& file) {
  std::map<std::string, std::string> settings;
  try {
    flatten(YAML::Load(escapes_as_stand_ins(read_file(file))), "", settings);
  } catch (const YAML::Exception& error) {
    fail("{}: {}", file.string(), error.what());
  }
  return settings;
}

std::optional<double> number_at(const Json& json, const std::string& path) {
  const Json* found = json.follow(path);
  if (!found || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string text_at(const Json& json, std::string_view key) {
  const Json* const found = json.is_object() ? json.find(key) : nullptr;
  return found && found->is_string() ? found->text() : "";
}

bool is_run_folder(const fs::path& folder) {
  const auto has = [&](const char* name) { return is_there(folder / name); };
  return has(kConfig) && (has(kArguments) || has(kMetrics) || has(kLog));
}

// ---------------------------------------------------------------------------- Comparisons

FinishedRun read_finished_run(const fs::path& folder) {
  FSDP_CHECK(fs::is_directory(folder), "{}: no such folder", folder.string());
  for (const char* name : {kConfig, kMetrics}) {
    FSDP_CHECK(fs::exists(folder / name),
               "{}: has no {}: not the directory of a run, or the run has not ended",
               folder.string(), name);
  }
  return {.folder = folder,
          .settings = read_settings(folder / kConfig),
          .metrics = read_json_file(folder / kMetrics)};
}

FinishedRun read_run(const fs::path& folder) {
  const bool ended = is_there(folder / kMetrics);
  if (ended || !is_run_folder(folder)) return read_finished_run(folder);
  return {.folder = folder,
          .settings = read_settings(folder / kConfig),
          .metrics = metrics_so_far(folder),
          .state = std::string(name_of(condition_of(folder, unix_time()).state))};
}

// ---------------------------------------------------------------------------- Going on

RunRecord read_run_record(const fs::path& run_directory) {
  RunRecord record;
  const auto read = [&](const fs::path& file, const std::function<void(const Json&)>& use) {
    read_part(file, use, [&](const std::string& why) {
      record.notes.push_back(why + "; what it says is not known");
    });
  };
  read(run_directory / kArguments, [&](const Json& json) {
    record.id = json.value("run", "");
    record.working_directory = json.value("working_directory", "");
    const Json* const from = json.find("resumed_from");
    if (from && from->is_object()) record.origin = checkpoint_from(*from);
  });
  if (is_there(last_file(run_directory))) record.last.emplace();
  read(last_file(run_directory), [&](const Json& json) { record.last = checkpoint_from(json); });
  // Outside of the folder whose loss it tells.
  read(run_directory / kProgress, [&](const Json& json) {
    const int64_t step = json.value("durable_step", int64_t{0});
    if (step > 0 && !record.last) record.last = {.step = step, .path = "", .run = record.id};
  });
  read(run_directory / kMetrics, [&](const Json& json) {
    record.interrupted = json.value("interrupted", true);
    const Json* const end = json.find("ended");
    if (end && end->is_object() && end->value("status", 0) == status::kGaveUp)
      record.gave_up = end->value("reason", "");
    record.steps = json.value("steps", int64_t{0});
    record.epochs = json.value("epochs", 0.0);
    if (const Json* const left = json.find("left_out_batches"))
      record.left_out = ranges_from(*left);
    record.ended = true;
  });
  return record;
}

void note_last_checkpoint(const fs::path& run_directory, const CheckpointOfRun& checkpoint) {
  make_folders(last_file(run_directory).parent_path());
  write_json_file(last_file(run_directory), to_json(checkpoint));
}

// ---------------------------------------------------------------------------- Whether it lives

std::string_view name_of(RunState state) {
  constexpr std::array<std::string_view, 5> kNames = {"ended", "failed", "running", "hung",
                                                      "killed"};
  return kNames[static_cast<size_t>(state)];
}

std::optional<EndNote> end_of_run(const fs::path& run_directory) {
  const fs::path file = run_directory / kMetrics;
  if (!is_there(file)) return read_end_note(run_directory);
  EndNote note = {.time = written_at(file), .status = 0, .cause = "done"};
  read_part(
      file,
      [&](const Json& json) {
        const Json* const ended = json.find("ended");
        if (!ended || !ended->is_object()) return;
        note.status = ended->value("status", 0);
        note.cause = ended->value("reason", "");
      },
      [&](const std::string&) { note.cause = "its metrics.json cannot be read"; });
  return note;
}

std::string only_host_of(const fs::path& run_directory) {
  try {
    const auto hosts =
        read_json_file(run_directory / kArguments).at("hosts").get<std::vector<std::string>>();
    const bool one = std::ranges::all_of(hosts, [&](const auto& h) { return h == hosts[0]; });
    return one && !hosts.empty() ? hosts[0] : "";
  } catch (const std::exception&) {  // not there, or cut
    return "";
  }
}

RunCondition condition_of(const fs::path& run_directory, double now) {
  RunCondition out = {
      .end = end_of_run(run_directory), .holder = holder_of(run_directory), .silent_s = -1};
  const bool done = is_there(run_directory / kMetrics);
  const double ended = written_at(run_directory / (done ? kMetrics : kEndNote));
  if (!out.holder.empty() && ended < written_at(run_directory / kLock))
    out.end.reset();  // of the start before, which this one removes when it has set itself up
  const double seen = written_at(run_directory / kProgress);
  // One that is older than the lock is of the start before: this one is in its set-up.
  if (seen > 0 && (out.holder.empty() || seen >= written_at(run_directory / kLock)))
    out.silent_s = std::max(now - seen, 0.0);
  const bool lives = !out.holder.empty() ||
                     (out.silent_s >= 0 && out.silent_s < kSilence && !was_here(run_directory));
  if (out.end)
    out.state = done && out.end->status != status::kGaveUp ? RunState::kEnded : RunState::kFailed;
  else if (lives)
    out.state = out.silent_s > kSilence ? RunState::kSilent : RunState::kRunning;
  return out;
}

}  // namespace fsdp::tools
