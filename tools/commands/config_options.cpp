// Contract: tools/commands/config_options.h.
#include "tools/commands/config_options.h"

#include "core/io/json.h"
#include "tools/train/config_to_session.h"

namespace fsdp::tools {

void add_config_options(const Command& command, ConfigOptions& options) {
  command.add_option("--config", options.config, "YAML file; absent: defaults and --set");
  command.add_option("--model", options.model,
                     "a folder or a preset: the same as --set model.path= or model.preset=");
  command.add_option("--data", options.data,
                     "files to train on: the same as --set data.train=[...]");
  command.add_option("--steps", options.steps, "the same as --set train.steps=");
  command.add_option("--batch", options.batch, "the same as --set train.batch=");
  command.add_option("--lr", options.lr, "the same as --set train.lr=");
  command.add_option("--set", options.overrides, "sets keys, over the file: train.lr=1e-4");
}

std::vector<std::string> overrides_of(const ConfigOptions& options) {
  std::vector<std::string> all = options.overrides;
  if (!options.model.empty()) all.push_back(model_override(options.model));
  // As a list of quoted texts, which is JSON and YAML: a name may hold commas and brackets.
  if (!options.data.empty()) all.push_back("data.train=" + Json(options.data).dump());
  for (const auto& [key, value] : {std::pair{"train.steps", options.steps},
                                   {"train.batch", options.batch},
                                   {"train.lr", options.lr}}) {
    if (!value.empty()) all.push_back(fmt::format("{}={}", key, value));
  }
  return all;
}

}  // namespace fsdp::tools
