// Tables whose rows are places in metrics.json. Contract: tools/page/comparison_sections.h.
#include "tools/page/comparison_sections.h"

#include <algorithm>
#include <functional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/page/html.h"
#include "tools/report/finished_run.h"

namespace fsdp::tools {
namespace {

using Value = std::function<std::optional<double>(const RunView&)>;

std::vector<std::string> head_of(const std::vector<RunView>& runs) {
  std::vector<std::string> head = {""};
  for (const RunView& run : runs) head.push_back(run.name);
  return head;
}

std::optional<double> last_of(const RunView& run, std::string_view curve) {
  const auto& points = run.log.curve(curve).points;
  return points.empty() ? std::nullopt : std::optional(points.back().value);
}

// Of metrics.json; of a run that has not ended the last one of the log, or of progress.json.
Value number(const char* path, const char* curve = nullptr, const char* progress = nullptr) {
  return [=](const RunView& run) -> std::optional<double> {
    if (const auto value = number_at(run.metrics, path)) return value;
    if (run.has_ended()) return std::nullopt;
    if (curve) return last_of(run, curve);
    return progress ? number_at(run.progress, progress) : std::nullopt;
  };
}

class Comparison {
 public:
  explicit Comparison(const std::vector<RunView>& runs) : runs_(runs), table_(head_of(runs)) {}

  void text(const std::string& name, const std::function<std::string(const RunView&)>& value) {
    std::vector<Cell> cells;
    bool any = false;
    for (const RunView& run : runs_) {
      cells.push_back(text_cell(value(run)));
      any = any || !cells.back().text.empty();
    }
    if (any) table_.row(name, cells);
  }
  // A row of which no run has a value is left out. `factor`: of the other runs that have ended, to
  // the first one.
  void row(const std::string& name, const Value& value, int digits, bool factor = false) {
    add(
        name, value, [=](auto v) { return number_cell(v, digits); }, factor);
  }
  void mib(const std::string& name, const Value& value) {
    const auto used = [&](const RunView& run) { return value(run).value_or(0) > 0; };
    if (std::any_of(runs_.begin(), runs_.end(), used)) add(name, value, mib_cell, true);
  }
  std::string html() const { return table_.html(); }

 private:
  void add(const std::string& name, const Value& value,
           const std::function<Cell(std::optional<double>)>& cell_of, bool factor) {
    std::vector<Cell> cells;
    std::optional<double> first;
    bool any = false;
    for (const RunView& run : runs_) {
      const std::optional<double> here = value(run);
      cells.push_back(cell_of(here));
      any = any || here;
      if (cells.size() == 1)
        first = run.has_ended() ? here : std::nullopt;
      else if (factor && run.has_ended() && first && here && *first > 0)
        cells.back().beside = fmt::format("x {:.2f}", *here / *first);
    }
    if (any) table_.row(name, cells);
  }

  const std::vector<RunView>& runs_;
  HtmlTable table_;
};

std::string text_at(const RunView& run, const char* key) {
  for (const Json* from : {&run.metrics, &run.arguments}) {
    const Json* found = from->is_object() ? from->find(key) : nullptr;
    if (found && found->is_string()) return found->text();
  }
  return "";
}

std::string setting(const RunView& run, const std::string& key) {
  const auto found = run.settings.find(key);
  return found == run.settings.end() ? "" : found->second;
}

Value ms_per_step(const char* path) {
  return [=](const RunView& run) -> std::optional<double> {
    const auto seconds = number_at(run.metrics, path), steps = number_at(run.metrics, "/steps");
    if (!seconds || !steps || *steps <= 0) return std::nullopt;
    return 1000 * *seconds / *steps;
  };
}

}  // namespace

std::string outcome_html(const std::vector<RunView>& runs, double now) {
  Comparison table(runs);
  table.text("state", [&](const RunView& run) { return run.state(now); });
  table.text("folder", [](const RunView& run) { return run.folder.string(); });
  table.text("model", [](const RunView& run) { return text_at(run, "model"); });
  table.row("parameters", number("/parameters"), 0);
  table.text("strategy", [](const RunView& run) { return setting(run, "fsdp.strategy"); });
  table.text("dtype", [](const RunView& run) { return setting(run, "train.dtype"); });
  table.row(
      "ranks",
      [](const RunView& run) -> std::optional<double> {
        return run.ranks() > 0 ? std::optional<double>(run.ranks()) : std::nullopt;
      },
      0);
  table.row("steps", number("/steps", nullptr, "/step"), 0);
  table.row("training loss", number("/train_loss", "loss"), 4);
  table.row("validation loss", number("/validation_loss", "validation_loss"), 4);
  table.row("best validation loss", number("/best_validation_loss"), 4);
  table.row("tokens/s", number("/tokens_per_s", "tokens_per_s"), 0, true);
  table.row("tokens/s per rank", number("/tokens_per_s_per_rank"), 0, true);
  table.row("seconds, evaluations included", number("/wall_time_s", nullptr, "/wall_time_s"), 1,
            true);
  table.mib("peak memory of rank 0 (MiB)", number("/memory/ledger/total", "peak_memory_bytes"));
  table.mib("on its host (MiB)", number("/memory/ledger_on_host/total"));
  table.mib("in its file (MiB)", number("/memory/ledger_in_file/total"));
  table.row("communication not hidden, with evaluations (ms a step)",
            ms_per_step("/communication/exposed_s"), 3, true);
  table.row("skipped steps", number("/skipped_steps"), 0);
  table.text("hash of the weights",
             [](const RunView& run) { return text_at(run, "weights_hash"); });
  return table.html();
}

std::string costs_html(const std::vector<RunView>& runs) {
  Comparison table(runs);
  const auto cost = [](const char* path) { return number(path, nullptr, path); };
  table.row("restarts", cost("/restarts"), 0);
  table.row("work done and lost (s)", cost("/lost_s"), 1);
  table.row("until failures were noticed (s)", cost("/detection_s"), 1);
  table.row("pauses and starts in vain (s)", cost("/pause_s"), 1);
  table.row("restarts, to their first step (s)", cost("/restart_s"), 1);
  table.row("share of time in steps that count", number("/effective_share"), 3);
  table.row("rollbacks", number("/rollbacks"), 0);
  table.row("checkpoints: the loop stood still (s)", cost("/save_stall_s"), 2);
  table.row("checkpoints: written for (s)", cost("/save_write_s"), 2);
  table.row("stall of saves, of their writing", number("/save_stall_share"), 3);
  table.row("last durable step", number("/ended/last_durable_step", nullptr, "/durable_step"), 0);
  table.row("step of the best checkpoint", number("/best_step"), 0);
  table.row("went on from step", number("/resumed_from"), 0);
  table.text("a checkpoint every (steps)",
             [](const RunView& run) { return setting(run, "checkpoint.every"); });
  table.text("complete checkpoints now, at steps", [](const RunView& run) {
    return run.checkpoints.empty() ? std::string("none")
                                   : fmt::format("{}", fmt::join(run.checkpoints, ", "));
  });
  return table.html();
}

std::string settings_html(const std::vector<RunView>& runs) {
  std::set<std::string> keys;
  for (const RunView& run : runs) {
    for (const auto& [key, value] : run.settings) keys.insert(key);
  }
  HtmlTable different(head_of(runs)), all(head_of(runs));
  for (const std::string& key : keys) {
    std::vector<Cell> cells;
    std::set<std::string> values;
    for (const RunView& run : runs) {
      cells.push_back(text_cell(setting(run, key), 120));
      values.insert(setting(run, key));
    }
    all.row(key, cells, values.size() > 1);
    if (values.size() > 1) different.row(key, cells, true);
  }
  std::string out;
  for (const RunView& run : runs) {
    if (const std::string call = run.call(); !call.empty()) out += preformatted(call);
  }
  if (runs.size() > 1) {
    out += different.empty() ? note("All settings are the same.") : different.html();
  }
  return out + details(fmt::format("all {} settings", keys.size()), all.html(), false);
}

}  // namespace fsdp::tools
