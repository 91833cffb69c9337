// The table. Contents: tools/report/metrics.cpp.
#include "tools/report/compare_runs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "core/error.h"
#include "tools/report/run_reader.h"

namespace fsdp::tools {
namespace {

std::set<std::string> keys_at(const Json& json, const std::string& path) {
  std::set<std::string> out;
  const Json* found = json.follow(path);
  if (!found || !found->is_object()) return out;
  for (const auto& [key, value] : found->items()) out.insert(key);
  return out;
}

// What stands behind the value of a run that is not the first, on how many digits after the point
// its row has. A first value of which the row shows one digit would give a factor without meaning.
using Change = std::string (*)(std::optional<double> first, std::optional<double> other,
                               int digits);

bool comparable(std::optional<double> first, std::optional<double> other, int digits) {
  if (!first || !other || *first == 0) return false;
  return digits == 0 || std::abs(*first) * std::pow(10, digits) >= 10;
}

std::string percent_of(std::optional<double> first, std::optional<double> other, int digits) {
  if (!comparable(first, other, digits) || *first == *other) return "";
  const double percent = 100 * (*other - *first) / *first;
  return percent < 1000 ? fmt::format("{:>+.1f} %", percent)
                        : fmt::format("x {:.0f}", *other / *first);
}

std::string factor_of(std::optional<double> first, std::optional<double> other, int digits) {
  if (!comparable(first, other, digits) || *other == 0) return "";
  return fmt::format("x {:.2f}", *other / *first);
}

struct Row {
  std::string name;
  std::vector<std::string> values;   // of each run
  std::vector<std::string> changes;  // of each but the first; none: the row has none
};

// Sections of rows, whose columns are as wide in all of them.
class Table {
 public:
  explicit Table(const std::vector<FinishedRun>& runs)
      : runs_(runs), change_(runs.size() == 2 ? percent_of : factor_of) {}

  void add(Row row) { sections_.back().rows.push_back(std::move(row)); }
  // `scale`: what the numbers are multiplied with, of any run. Without a row where all are
  // `nothing`.
  void row(const std::string& name, const std::string& path,
           const std::function<double(const Json&)>& scale, int digits, double nothing = 0) {
    std::vector<std::optional<double>> values;
    for (const FinishedRun& run : runs_) values.push_back(scaled(run.metrics, path, scale));
    const bool none =
        std::ranges::all_of(values, [&](auto value) { return value.value_or(nothing) == nothing; });
    if (none) return;
    Row row = {.name = name, .values = {}, .changes = {}};
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string& state = runs_[i].state;
      row.values.push_back(values[i]       ? fmt::format("{:.{}f}", *values[i], digits)
                           : state.empty() ? "-"
                                           : state);
      // What a run has come to so far says nothing of the other one's end.
      const bool both = runs_[0].state.empty() && state.empty();
      if (i > 0) row.changes.push_back(both ? change_(values[0], values[i], digits) : "");
    }
    add(std::move(row));
  }
  void rows_of_keys(const std::string& path, const std::string& rest,
                    const std::function<double(const Json&)>& scale, int digits) {
    std::set<std::string> keys;
    for (const FinishedRun& run : runs_) keys.merge(keys_at(run.metrics, path));
    for (const std::string& key : keys) row(key, path + "/" + key + rest, scale, digits);
  }
  // Only printed when rows follow before the next one. "": no line.
  void title(const std::string& text) { sections_.push_back({text, {}}); }
  std::string text() const {
    std::string out;
    for (const Section& section : sections_) {
      if (!section.rows.empty() && !section.title.empty()) out += section.title + "\n";
      for (const Row& row : section.rows) out += text_of(row);
    }
    return out;
  }

 private:
  struct Section {
    std::string title;
    std::vector<Row> rows;
  };

  static std::optional<double> scaled(const Json& json, const std::string& path,
                                      const std::function<double(const Json&)>& scale) {
    const auto value = number_at(json, path);
    return value ? std::optional(*value * scale(json)) : std::nullopt;
  }
  // Of the longest text, but not narrower than `least`.
  size_t width(size_t least, const std::function<const std::string*(const Row&)>& text) const {
    for (const Section& section : sections_) {
      for (const Row& row : section.rows) {
        if (const std::string* const found = text(row)) least = std::max(least, width_of(*found));
      }
    }
    return least;
  }
  std::string text_of(const Row& row) const {
    const size_t change = runs_.size() == 2 ? 12 : 10;
    std::string out =
        "  " + padded(row.name, width(34, [](const Row& each) { return &each.name; }));
    for (size_t i = 0; i < row.values.size(); ++i) {
      const size_t wide = width(
          13, [i](const Row& each) { return i < each.values.size() ? &each.values[i] : nullptr; });
      out += " " + padded(row.values[i], wide, true);
      const bool changes = i > 0 && (!row.changes.empty() || runs_.size() > 2);
      if (changes) out += padded(row.changes.empty() ? "" : row.changes[i - 1], change, true);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
  }

  const std::vector<FinishedRun>& runs_;
  Change change_;
  std::vector<Section> sections_;
};

void add_differing_settings(const std::vector<FinishedRun>& runs, Table& table) {
  std::set<std::string> keys;
  for (const FinishedRun& run : runs) {
    for (const auto& [key, value] : run.settings) keys.insert(key);
  }
  bool any = false;
  for (const std::string& key : keys) {
    Row row = {.name = key, .values = {}, .changes = {}};
    for (const FinishedRun& run : runs) {
      const auto found = run.settings.find(key);
      row.values.push_back(found == run.settings.end() ? "-" : found->second);
    }
    if (std::set(row.values.begin(), row.values.end()).size() == 1) continue;
    table.add(std::move(row));
    any = true;
  }
  if (!any) table.add({.name = "the same", .values = {}, .changes = {}});
}

// The names of the runs.
std::string head(const std::vector<FinishedRun>& runs) {
  const auto name = [](const FinishedRun& run) {
    return run.folder.string() + (run.state.empty() ? "" : " (" + run.state + ")");
  };
  if (runs.size() == 2)
    return fmt::format("first:  {}\nsecond: {}\n", name(runs[0]), name(runs[1]));
  std::string list;
  for (size_t i = 0; i < runs.size(); ++i) list += fmt::format("{}: {}\n", i + 1, name(runs[i]));
  return list;
}

double plain(const Json&) { return 1; }
double mib(const Json&) { return 1.0 / (1 << 20); }
double per_step(const Json& m) {
  const double steps = number_at(m, "/steps").value_or(0);
  return steps > 0 ? 1.0 / steps : 0.0;
}
double ms_per_step(const Json& m) { return 1000 * per_step(m); }

void add_outcome(Table& table) {
  table.title("outcome");
  table.row("ranks", "/world_size", plain, 0);
  table.row("steps", "/steps", plain, 0);
  table.row("training loss", "/train_loss", plain, 4);
  table.row("validation loss", "/validation_loss", plain, 4);
  table.row("s/step", "/step_time_s", per_step, 4);
  table.row("tokens/s", "/tokens_per_s", plain, 0);
  table.title("in addition to training, over all starts of a run");
  table.row("restarts", "/restarts", plain, 0);
  table.row("work done and lost (s)", "/lost_s", plain, 1);
  table.row("until failures were noticed (s)", "/detection_s", plain, 1);
  table.row("pauses and starts in vain (s)", "/pause_s", plain, 1);
  table.row("restarts, to their first step (s)", "/restart_s", plain, 1);
  table.row("share of time in steps that count", "/effective_share", plain, 3, 1);
  table.row("stall of saves, of their writing", "/save_stall_share", plain, 3);
}

void add_communication(Table& table) {
  table.title("collectives of rank 0: calls per step, evaluations included");
  table.rows_of_keys("/collectives", "/calls", per_step, 2);
  table.title("collectives of rank 0: MiB per step, evaluations included");
  table.rows_of_keys(
      "/collectives", "/bytes", [](const Json& m) { return mib(m) * per_step(m); }, 3);
  table.title("time of rank 0 not hidden by compute: ms per step, evaluations included");
  table.rows_of_keys("/communication/by_kind", "/exposed_s", ms_per_step, 3);
  table.row("each moment once", "/communication/exposed_s", ms_per_step, 3);
  table.row("compute", "/communication/compute_s", ms_per_step, 3);
}

void add_memory(Table& table) {
  table.title("peak memory of rank 0 (MiB)");
  table.rows_of_keys("/memory/ledger/by_category", "", mib, 2);
  table.row("all at once", "/memory/ledger/total", mib, 2);
  const auto offloaded = [&](const std::string& path, const char* place) {
    table.title(fmt::format("offloaded, {}: peak of rank 0 (MiB)", place));
    table.rows_of_keys(path + "/by_category", "", mib, 2);
    table.row("all at once", path + "/total", mib, 2);
  };
  offloaded("/memory/ledger_on_host", "on the host");
  offloaded("/memory/ledger_in_file", "on disk");
}

std::vector<FinishedRun> read_runs(const std::vector<std::filesystem::path>& folders) {
  FSDP_CHECK(folders.size() >= 2, "compare: expected two run directories or more, got {}",
             folders.size());
  std::vector<FinishedRun> runs;
  for (const std::filesystem::path& folder : folders) runs.push_back(read_run(folder));
  return runs;
}

}  // namespace

std::string compare_runs(const std::vector<std::filesystem::path>& folders) {
  const std::vector<FinishedRun> runs = read_runs(folders);
  Table table(runs);
  if (runs.size() > 2) {
    table.title("");
    Row numbers = {.name = "x: factor to run 1", .values = {}, .changes = {}};
    for (size_t i = 1; i <= runs.size(); ++i) numbers.values.push_back(std::to_string(i));
    table.add(std::move(numbers));
  }
  table.title("settings");
  add_differing_settings(runs, table);
  add_outcome(table);
  add_communication(table);
  add_memory(table);
  const bool traced = std::none_of(runs.begin(), runs.end(), [](const FinishedRun& run) {
    return run.metrics.value("communication", Json()).is_null();
  });
  return head(runs) + table.text() +
         (traced ? "" : "not hidden by compute: only known of runs with runtime.trace\n");
}

CaseTable table_of_runs(const std::vector<std::filesystem::path>& folders,
                        const std::vector<std::string>& columns) {
  CaseTable table = {.columns = {}, .rows = {}, .baseline = ""};
  const std::vector<std::string> usual = {"s_per_step",  "tokens_per_s",   "speed_up",
                                          "peak_memory", "peak_predicted", "host_peak",
                                          "disk_peak",   "train_loss",     "validation_loss"};
  for (const std::string& name : columns.empty() ? usual : columns) {
    table.columns.push_back(run_column(name));
  }
  for (FinishedRun& run : read_runs(folders)) {
    const auto ranks = static_cast<int>(number_at(run.metrics, "/world_size").value_or(1));
    CaseRow row = {.name = run.folder.string(), .ranks = ranks};
    for (const RunColumn& column : table.columns) {
      const bool unknown = !column.value || column.value(run).is_null();
      if (!run.state.empty() && unknown) row.known[column.name] = run.state;
    }
    row.runs.push_back(std::move(run));
    table.rows.push_back(std::move(row));
  }
  table.baseline = table.rows.front().name;
  return table;
}

}  // namespace fsdp::tools
