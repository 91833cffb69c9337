// Contract: tools/report/finished_run.h.
#include "tools/report/finished_run.h"

#include <algorithm>

#include <yaml-cpp/yaml.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/odd_bytes.h"
#include "tools/report/metrics_line.h"
#include "tools/report/run_costs.h"
#include "tools/report/run_state.h"

namespace fsdp::tools {
namespace {

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

Json metrics_so_far(const std::filesystem::path& folder) {
  const LogEnd log = read_log_end(folder / "metrics.jsonl");
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
    set("world_size", number_at(read_json_file(folder / "run_args.json"), "/world_size"));
    const RunProgress progress = read_progress(folder / "progress.json");
    visit_costs(progress.costs, [&](const char* key, auto value) { metrics[key] = value; });
    metrics["steps"] = std::max(progress.step, static_cast<int64_t>(log.step.value_or(0)));
    metrics["effective_share"] = progress.costs.effective_share(progress.wall_time_s);
  } catch (const Error&) {  // not there, or half of it is written
  }
  return metrics;
}

}  // namespace

std::map<std::string, std::string> read_settings(const std::filesystem::path& file) {
  std::map<std::string, std::string> settings;
  try {
    flatten(YAML::Load(escapes_as_stand_ins(read_file(file))), "", settings);
  } catch (const YAML::Exception& error) {
    fail("{}: {}", file.string(), error.what());
  }
  return settings;
}

FinishedRun read_finished_run(const std::filesystem::path& folder) {
  FSDP_CHECK(std::filesystem::is_directory(folder), "{}: no such folder", folder.string());
  for (const char* name : {"config.yaml", "metrics.json"}) {
    FSDP_CHECK(std::filesystem::exists(folder / name),
               "{}: has no {}: not the directory of a run, or of one that has not ended",
               folder.string(), name);
  }
  return {.folder = folder,
          .settings = read_settings(folder / "config.yaml"),
          .metrics = read_json_file(folder / "metrics.json")};
}

FinishedRun read_run(const std::filesystem::path& folder) {
  const bool ended = is_there(folder / "metrics.json");
  if (ended || !is_run_folder(folder)) return read_finished_run(folder);
  return {.folder = folder,
          .settings = read_settings(folder / "config.yaml"),
          .metrics = metrics_so_far(folder),
          .state = std::string(name_of(condition_of(folder, unix_time()).state))};
}

std::optional<double> number_at(const Json& json, const std::string& path) {
  const Json* found = json.follow(path);
  if (!found || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

}  // namespace fsdp::tools
