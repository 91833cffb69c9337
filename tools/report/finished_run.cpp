// Contract: tools/report/finished_run.h.
#include "tools/report/finished_run.h"

#include <yaml-cpp/yaml.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/odd_bytes.h"

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

std::optional<double> number_at(const Json& json, const std::string& path) {
  const Json* found = json.follow(path);
  if (!found || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

}  // namespace fsdp::tools
