// Contract: tools/report/run_status.h.
#include "tools/report/run_status.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/io/file.h"
#include "core/text/numbers.h"
#include "tools/report/failure_log.h"
#include "tools/report/progress.h"
#include "tools/report/run_reader.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using Number = std::optional<double>;

constexpr size_t kFailures = 3;

// "node1 (ranks 0-3)" would need more than a line: only the names, each once.
std::vector<std::string> hosts_of(const RunStatus& status) {
  std::vector<std::string> names;
  const Json* const hosts = status.arguments.is_object() ? status.arguments.find("hosts") : nullptr;
  if (!hosts || !hosts->is_array()) return names;
  for (const Json& host : *hosts) {
    if (host.is_string() && std::find(names.begin(), names.end(), host.text()) == names.end())
      names.push_back(host.text());
  }
  return names;
}

std::string state_line(const RunStatus& status) {
  const RunCondition& c = status.condition;
  std::string line = fmt::format("{}: {}", status.folder.string(), name_of(c.state));
  if (c.end) {
    if (c.end->status != 0) line += fmt::format(" with status {}", c.end->status);
    line += ": " + c.end->cause;
    if (c.end->time > 0) line += fmt::format(" ({})", utc_text(c.end->time));
  } else if (c.state == RunState::kKilled) {
    line += ", or lost with its host: no process has the run directory, and no end is noted";
  } else if (c.state == RunState::kSilent) {
    line += fmt::format(": no sign of life for {}", format_duration(c.silent_s));
  } else if (c.silent_s < 0) {
    line += ", in its set-up";
  }
  return line + "\n";
}

std::string where_line(const RunStatus& status) {
  std::string line;
  const std::vector<std::string> hosts = hosts_of(status);
  if (!hosts.empty()) {
    const size_t shown = std::min<size_t>(hosts.size(), 8);
    line =
        fmt::format("on {}{}", fmt::join(hosts.begin(), hosts.begin() + shown, ", "),
                    shown < hosts.size() ? fmt::format(" and {} more", hosts.size() - shown) : "");
  }
  if (!status.condition.holder.empty())
    line += (line.empty() ? "" : ", ") + status.condition.holder;
  else if (const std::string started = text_at(status.arguments, "started"); !started.empty())
    line += (line.empty() ? "" : ", ") + ("started " + started);
  return line.empty() ? "" : "  " + line + "\n";
}

std::string step_line(const RunStatus& status) {
  const Number step = status.step(), steps = status.steps();
  if (!step) return "  no step is finished\n";
  std::string line = fmt::format("  step {:.0f}", *step);
  if (steps) line += fmt::format(" of {:.0f}", *steps);
  if (status.log.loss) line += "  loss " + format_fixed(*status.log.loss, 4);
  if (status.log.validation_loss)
    line += "  validation " + format_fixed(*status.log.validation_loss, 4);
  if (status.log.tokens_per_s)
    line += fmt::format("  {} tokens/s", format_count(std::llround(*status.log.tokens_per_s)));
  if (const Number left = status.seconds_left()) line += "  ETA " + format_duration(*left);
  return line + "\n";
}

std::string costs_line(const RunStatus& status) {
  if (!status.progress) return "";
  const RunCosts& costs = status.progress->costs;
  std::string line = fmt::format("  restarts {}", costs.restarts);
  if (costs.restarts > 0) {
    line += fmt::format(
        "; {:.1f} % of the time in steps that count; {:.0f} s of work lost, {:.0f} s until "
        "noticed, {:.0f} s of pauses, {:.0f} s to first steps",
        100 * costs.effective_share(status.progress->wall_time_s), costs.lost_s, costs.detection_s,
        costs.pause_s, costs.restart_s);
  }
  return line + "\n";
}

// Where the last durable checkpoint is; "": not known. On a full disk last.json stays behind.
std::string checkpoint_path(const RunStatus& status) {
  fs::path path = text_at(status.last_checkpoint, "path");
  if (path.empty()) return "";
  const std::string name = fmt::format("step-{}", status.durable_step());
  path = path.parent_path() / name;
  const fs::path started_in = text_at(status.arguments, "working_directory");
  return is_there(started_in / path) ? path.string() : "";
}

std::string line_of_failure(const Json& failure) {
  if (const auto many = number_at(failure, "/failures"))
    return fmt::format("    until {}: {:.0f} more\n", text_at(failure, "time"), *many);
  const auto status = number_at(failure, "/status");
  return fmt::format("    {}{}{}: {}; {:.0f} steps lost\n", text_at(failure, "time"),
                     text_at(failure, "host").empty() ? "" : " on " + text_at(failure, "host"),
                     status ? fmt::format(", status {:.0f}", *status) : "",
                     text_at(failure, "cause"), number_at(failure, "/steps_lost").value_or(0));
}

}  // namespace

std::optional<double> RunStatus::step() const {
  if (const Number ended = number_at(metrics, "/steps")) return ended;
  if (progress && (progress->seen > 0 || progress->step > 0))
    return std::max(static_cast<double>(progress->step), 0.0);
  return log.step;
}

std::optional<double> RunStatus::steps() const {
  const Number all = number_at(arguments, "/max_steps");
  return all && *all > 0 ? all : std::nullopt;
}

std::optional<double> RunStatus::seconds_left() const {
  const bool goes_on = condition.state == RunState::kRunning;
  if (!goes_on || !step() || !steps() || log.steps_per_s.value_or(0) <= 0) return {};
  return std::max(*steps() - *step(), 0.0) / *log.steps_per_s;
}

int64_t RunStatus::durable_step() const {
  const double noted = number_at(last_checkpoint, "/step").value_or(0);
  return std::max(static_cast<int64_t>(noted), progress ? progress->durable_step : 0);
}

RunStatus read_run_status(const fs::path& folder, double now) {
  FSDP_CHECK(is_folder(folder), "{}: no such folder", folder.string());
  FSDP_CHECK(is_run_folder(folder),
             "{}: no run directory: expected config.yaml and run_args.json in it", folder.string());
  RunStatus status = {.folder = folder, .condition = condition_of(folder, now)};
  status.arguments = part_of(folder / "run_args.json");
  status.metrics = part_of(folder / "metrics.json");
  status.last_checkpoint = part_of(folder / "checkpoints" / "last.json");
  status.progress = progress_so_far(folder / "progress.json");
  status.failures = read_failures(folder);
  if (status.failures.size() > kFailures)
    status.failures.erase(status.failures.begin(), status.failures.end() - kFailures);
  status.log = read_log_end(folder / "metrics.jsonl");
  return status;
}

std::string describe(const RunStatus& status, double now) {
  std::string text = state_line(status) + where_line(status) + step_line(status);
  if (status.condition.silent_s >= 0 && !status.condition.end)
    text +=
        fmt::format("  last sign of life {} ago ({})\n", format_duration(status.condition.silent_s),
                    utc_text(now - status.condition.silent_s));
  const int64_t durable = status.durable_step();
  const std::string path = checkpoint_path(status);
  text += durable == 0 ? "  no checkpoint\n"
                       : fmt::format("  last durable checkpoint: step {}{}\n", durable,
                                     path.empty() ? "" : ", " + path);
  text += costs_line(status);
  if (!status.failures.empty()) text += "  last interruptions (failures.jsonl):\n";
  for (const Json& failure : status.failures) text += line_of_failure(failure);
  return text;
}

Json to_json(const RunStatus& status) {
  const auto number = [](const Number& value) { return value ? Json(*value) : Json(); };
  const RunCondition& c = status.condition;
  Json out = {{"run_directory", status.folder.string()},
              {"state", std::string(name_of(c.state))},
              {"holder", c.holder.empty() ? Json() : Json(c.holder)},
              {"hosts", hosts_of(status)},
              {"started", text_at(status.arguments, "started")},
              {"last_sign_of_life_s", c.silent_s >= 0 ? Json(c.silent_s) : Json()},
              {"step", number(status.step())},
              {"steps", number(status.steps())},
              {"loss", number(status.log.loss)},
              {"validation_loss", number(status.log.validation_loss)},
              {"tokens_per_s", number(status.log.tokens_per_s)},
              {"steps_per_s", number(status.log.steps_per_s)},
              {"eta_s", number(status.seconds_left())},
              {"last_durable_step", status.durable_step()},
              {"ended", Json()},
              {"failures", status.failures}};
  if (c.end) {
    out["ended"] = {{"status", c.end->status}, {"reason", c.end->cause}, {"time", c.end->time}};
  }
  if (status.progress) {
    visit_costs(status.progress->costs,
                [&](const char* key, const auto& value) { out[key] = value; });
    out["effective_share"] = status.progress->costs.effective_share(status.progress->wall_time_s);
  }
  return out;
}

}  // namespace fsdp::tools
