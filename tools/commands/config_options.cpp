// Contract: tools/commands/config_options.h.
#include "tools/commands/config_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/io/json.h"
#include "tools/commands/commands.h"
#include "tools/train/model_shape.h"

namespace fsdp::tools {

void add_config_options(const Command& command, const std::vector<FlagOf>& which,
                        ConfigOptions& options) {
  command.add_option("--config", options.config, "YAML file; absent: defaults and --set")
      .readable()
      .check(not_empty);
  command.add_option("--data", options.data, "files to train on: short for --set data.train=[...]")
      .readable();
  command
      .add_option("--model", options.models,
                  "a folder or a preset: short for --set model.path= or model.preset=")
      .repeatable()
      .path()
      .check(not_empty);
  command.add_option("--set", options.overrides, "set keys, overriding the file: train.lr=1e-4");
  add_listed_flags(command, which, options.flags);
}

std::vector<config::Override> overrides_of(const ConfigOptions& options) {
  std::vector<config::Override> all(options.overrides.begin(), options.overrides.end());
  for (const std::string& model : options.models) {
    all.emplace_back(model_override(model), "--model " + model);
  }
  // As a list of quoted texts, which is JSON and YAML: a name may hold commas and brackets.
  if (!options.data.empty()) {
    all.emplace_back("data.train=" + Json(options.data).dump(),
                     fmt::format("--data {}", fmt::join(options.data, " ")));
  }
  for (const KeyFlag& flag : options.flags) {
    for (config::Override& each : overrides_of(flag)) all.push_back(std::move(each));
  }
  return all;
}

}  // namespace fsdp::tools
