// Reading config.yaml and metrics.json of both, and the table. Contents: tools/report/metrics.cpp.
#include "tools/report/compare_runs.h"

#include <functional>
#include <map>
#include <optional>
#include <set>

#include <yaml-cpp/yaml.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace fsdp::tools {
namespace {

using Settings = std::map<std::string, std::string>;  // "train.lr" -> "0.0001"

void flatten(const YAML::Node& node, const std::string& path, Settings& out) {
  if (!node.IsMap()) {
    YAML::Emitter text;
    text << YAML::Flow << node;
    out[path] = text.c_str();
    return;
  }
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    flatten(entry.second, path.empty() ? key : path + "." + key, out);
  }
}

struct Run {
  Settings settings;
  Json metrics;
};

Run read_run(const std::filesystem::path& folder) {
  FSDP_CHECK(std::filesystem::is_directory(folder), "{}: no such folder", folder.string());
  for (const char* name : {"config.yaml", "metrics.json"}) {
    FSDP_CHECK(std::filesystem::exists(folder / name),
               "{}: has no {}: not the directory of a run, or of one that has not ended",
               folder.string(), name);
  }
  Run run;
  try {
    flatten(YAML::Load(read_file(folder / "config.yaml")), "", run.settings);
  } catch (const YAML::Exception& error) {
    fail("{}: {}", (folder / "config.yaml").string(), error.what());
  }
  run.metrics = read_json_file(folder / "metrics.json");
  return run;
}

// The number at a path such as "/memory/ledger/total"; none when it is absent or null.
std::optional<double> number_at(const Json& json, const std::string& path) {
  const Json* found = json.follow(path);
  if (!found || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::set<std::string> keys_at(const Json& json, const std::string& path) {
  std::set<std::string> out;
  const Json* found = json.follow(path);
  if (!found || !found->is_object()) return out;
  for (const auto& [key, value] : found->items()) out.insert(key);
  return out;
}

class Table {
 public:
  Table(const Run& first, const Run& second) : first_(first), second_(second) {}

  // `scale`: what the numbers are multiplied with, of either run.
  void row(const std::string& name, const std::string& path,
           const std::function<double(const Json&)>& scale, int digits) {
    const auto a = scaled(first_.metrics, path, scale), b = scaled(second_.metrics, path, scale);
    if (a.value_or(0) == 0 && b.value_or(0) == 0) return;
    text_ += fmt::format("  {:<34} {:>13} {:>13}{}\n", name, text_of(a, digits), text_of(b, digits),
                         change(a, b));
  }
  void rows_of_keys(const std::string& path, const std::string& rest,
                    const std::function<double(const Json&)>& scale, int digits) {
    std::set<std::string> keys = keys_at(first_.metrics, path);
    keys.merge(keys_at(second_.metrics, path));
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
  static std::string change(std::optional<double> a, std::optional<double> b) {
    if (!a || !b || *a == *b || *a == 0) return "";
    const double percent = 100 * (*b - *a) / *a;
    return percent < 1000 ? fmt::format("{:>+10.1f} %", percent)
                          : fmt::format("{:>12}", fmt::format("x {:.0f}", *b / *a));
  }
  static std::string text_of(std::optional<double> value, int digits) {
    return value ? fmt::format("{:.{}f}", *value, digits) : "-";
  }

  const Run& first_;
  const Run& second_;
  std::string title_, text_, done_;
};

std::string differing_settings(const Settings& first, const Settings& second) {
  std::set<std::string> keys;
  for (const Settings* settings : {&first, &second}) {
    for (const auto& [key, value] : *settings) keys.insert(key);
  }
  const auto value = [](const Settings& settings, const std::string& key) {
    const auto found = settings.find(key);
    return found == settings.end() ? std::string("-") : found->second;
  };
  std::string out;
  for (const std::string& key : keys) {
    const std::string a = value(first, key), b = value(second, key);
    if (a != b) out += fmt::format("  {:<34} {:>13} {:>13}\n", key, a, b);
  }
  return "settings\n" + (out.empty() ? "  the same\n" : out);
}

}  // namespace

std::string compare_runs(const std::filesystem::path& first, const std::filesystem::path& second) {
  const Run a = read_run(first), b = read_run(second);
  const auto plain = [](const Json&) { return 1.0; };
  const auto mib = [](const Json&) { return 1.0 / (1 << 20); };
  const auto per_step = [](const Json& m) {
    const double steps = number_at(m, "/steps").value_or(0);
    return steps > 0 ? 1.0 / steps : 0.0;
  };
  Table table(a, b);
  table.title("outcome");
  table.row("ranks", "/world_size", plain, 0);
  table.row("steps", "/steps", plain, 0);
  table.row("training loss", "/train_loss", plain, 4);
  table.row("validation loss", "/validation_loss", plain, 4);
  table.row("tokens/s", "/tokens_per_s", plain, 0);
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
  const bool traced = !a.metrics.value("communication", Json()).is_null() &&
                      !b.metrics.value("communication", Json()).is_null();
  return fmt::format(
      "first:  {}\nsecond: {}\n{}{}{}", first.string(), second.string(),
      differing_settings(a.settings, b.settings), table.finish(),
      traced ? "" : "not hidden by compute: only known of runs with runtime.trace\n");
}

}  // namespace fsdp::tools
