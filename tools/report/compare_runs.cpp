// The table. Contents: tools/report/metrics.cpp.
#include "tools/report/compare_runs.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "core/error.h"
#include "tools/report/finished_run.h"

namespace fsdp::tools {
namespace {

std::set<std::string> keys_at(const Json& json, const std::string& path) {
  std::set<std::string> out;
  const Json* found = json.follow(path);
  if (!found || !found->is_object()) return out;
  for (const auto& [key, value] : found->items()) out.insert(key);
  return out;
}

// What stands behind the value of a run that is not the first.
using Change = std::string (*)(std::optional<double> first, std::optional<double> other);

bool comparable(std::optional<double> first, std::optional<double> other) {
  return first && other && *first != 0;
}

std::string percent_of(std::optional<double> first, std::optional<double> other) {
  if (!comparable(first, other) || *first == *other) return "";
  const double percent = 100 * (*other - *first) / *first;
  return percent < 1000 ? fmt::format("{:>+10.1f} %", percent)
                        : fmt::format("{:>12}", fmt::format("x {:.0f}", *other / *first));
}

std::string factor_of(std::optional<double> first, std::optional<double> other) {
  const std::string text = comparable(first, other) ? fmt::format("x {:.2f}", *other / *first) : "";
  return fmt::format("{:>10}", text);
}

class Table {
 public:
  Table(const std::vector<FinishedRun>& runs)
      : runs_(runs), change_(runs.size() == 2 ? percent_of : factor_of) {}

  // `scale`: what the numbers are multiplied with, of any run.
  void row(const std::string& name, const std::string& path,
           const std::function<double(const Json&)>& scale, int digits) {
    std::vector<std::optional<double>> values;
    for (const FinishedRun& run : runs_) values.push_back(scaled(run.metrics, path, scale));
    if (std::all_of(values.begin(), values.end(), [](auto v) { return v.value_or(0) == 0; }))
      return;
    text_ += fmt::format("  {:<34}", name);
    for (size_t i = 0; i < values.size(); ++i) {
      text_ += fmt::format(" {:>13}", text_of(values[i], digits));
      if (i > 0) text_ += change_(values[0], values[i]);
    }
    text_.erase(text_.find_last_not_of(' ') + 1);
    text_ += '\n';
  }
  void rows_of_keys(const std::string& path, const std::string& rest,
                    const std::function<double(const Json&)>& scale, int digits) {
    std::set<std::string> keys;
    for (const FinishedRun& run : runs_) keys.merge(keys_at(run.metrics, path));
    for (const std::string& key : keys) row(key, path + "/" + key + rest, scale, digits);
  }
  // Only printed when rows follow before the next one.
  void title(const std::string& text) {
    finish();
    title_ = text;
  }
  std::string finish() {
    if (!text_.empty()) done_ += title_ + "\n" + text_;
    text_.clear();
    return done_;
  }

 private:
  static std::optional<double> scaled(const Json& json, const std::string& path,
                                      const std::function<double(const Json&)>& scale) {
    const auto value = number_at(json, path);
    return value ? std::optional(*value * scale(json)) : std::nullopt;
  }
  static std::string text_of(std::optional<double> value, int digits) {
    return value ? fmt::format("{:.{}f}", *value, digits) : "-";
  }

  const std::vector<FinishedRun>& runs_;
  Change change_;
  std::string title_, text_, done_;
};

std::string differing_settings(const std::vector<FinishedRun>& runs) {
  std::set<std::string> keys;
  for (const FinishedRun& run : runs) {
    for (const auto& [key, value] : run.settings) keys.insert(key);
  }
  const auto value = [](const auto& settings, const std::string& key) {
    const auto found = settings.find(key);
    return found == settings.end() ? std::string("-") : found->second;
  };
  const int wide = runs.size() == 2 ? 0 : 10;  // of the factors of the rows below
  std::string out;
  for (const std::string& key : keys) {
    std::string row = fmt::format("  {:<34}", key);
    std::set<std::string> values;
    for (size_t i = 0; i < runs.size(); ++i) {
      const std::string text = value(runs[i].settings, key);
      values.insert(text);
      row += fmt::format(" {:>13}", text);
      if (i > 0) row += std::string(static_cast<size_t>(wide), ' ');
    }
    row.erase(row.find_last_not_of(' ') + 1);
    if (values.size() > 1) out += row + "\n";
  }
  return "settings\n" + (out.empty() ? "  the same\n" : out);
}

// The names of the runs, and for three or more a line that numbers the columns.
std::string head(const std::vector<std::filesystem::path>& folders) {
  if (folders.size() == 2) {
    return fmt::format("first:  {}\nsecond: {}\n", folders[0].string(), folders[1].string());
  }
  std::string list, columns = fmt::format("  {:<34}", "x: factor to run 1");
  for (size_t i = 0; i < folders.size(); ++i) {
    list += fmt::format("{}: {}\n", i + 1, folders[i].string());
    columns += fmt::format(" {:>13}{:>{}}", i + 1, "", i == 0 ? 0 : 10);
  }
  columns.erase(columns.find_last_not_of(' ') + 1);
  return list + columns + "\n";
}

}  // namespace

std::string compare_runs(const std::vector<std::filesystem::path>& folders) {
  FSDP_CHECK(folders.size() >= 2, "compare: expected two run directories or more, got {}",
             folders.size());
  std::vector<FinishedRun> runs;
  for (const std::filesystem::path& folder : folders) runs.push_back(read_finished_run(folder));
  const auto plain = [](const Json&) { return 1.0; };
  const auto mib = [](const Json&) { return 1.0 / (1 << 20); };
  const auto per_step = [](const Json& m) {
    const double steps = number_at(m, "/steps").value_or(0);
    return steps > 0 ? 1.0 / steps : 0.0;
  };
  Table table(runs);
  table.title("outcome");
  table.row("ranks", "/world_size", plain, 0);
  table.row("steps", "/steps", plain, 0);
  table.row("training loss", "/train_loss", plain, 4);
  table.row("validation loss", "/validation_loss", plain, 4);
  table.row("tokens/s", "/tokens_per_s", plain, 0);
  table.title("beside training, over all starts of a run");
  table.row("restarts", "/restarts", plain, 0);
  table.row("work done and lost (s)", "/lost_s", plain, 1);
  table.row("until failures were noticed (s)", "/detection_s", plain, 1);
  table.row("restarts, to their first step (s)", "/restart_s", plain, 1);
  table.row("stall of saves, of their writing", "/save_stall_share", plain, 3);
  table.title("collectives of rank 0: calls per step, evaluations included");
  table.rows_of_keys("/collectives", "/calls", per_step, 2);
  table.title("collectives of rank 0: MiB per step, evaluations included");
  table.rows_of_keys(
      "/collectives", "/bytes", [&](const Json& m) { return mib(m) * per_step(m); }, 3);
  table.title("time of rank 0 not hidden by compute: ms per step, evaluations included");
  const auto ms_per_step = [&](const Json& m) { return 1000 * per_step(m); };
  table.rows_of_keys("/communication/by_kind", "/exposed_s", ms_per_step, 3);
  table.row("each moment once", "/communication/exposed_s", ms_per_step, 3);
  table.row("compute", "/communication/compute_s", ms_per_step, 3);
  table.title("peak memory of rank 0 (MiB)");
  table.rows_of_keys("/memory/ledger/by_category", "", mib, 2);
  table.row("all at once", "/memory/ledger/total", mib, 2);
  const bool traced = std::none_of(runs.begin(), runs.end(), [](const FinishedRun& run) {
    return run.metrics.value("communication", Json()).is_null();
  });
  return head(folders) + differing_settings(runs) + table.finish() +
         (traced ? "" : "not hidden by compute: only known of runs with runtime.trace\n");
}

}  // namespace fsdp::tools
