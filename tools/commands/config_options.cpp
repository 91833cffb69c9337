// Contract: tools/commands/config_options.h.
#include "tools/commands/config_options.h"

#include <tuple>

#include "core/io/json.h"
#include "tools/train/config_to_session.h"

namespace fsdp::tools {

void add_config_options(const Command& command, ConfigOptions& options) {
  command.add_option("--config", options.config, "YAML file; absent: defaults and --set");
  command.add_option("--data", options.data,
                     "files to train on: the same as --set data.train=[...]");
  // An empty text is what a shell makes of a variable that is not set.
  const auto not_empty = [](const std::string& text) {
    return std::string(text.empty() ? "expected a value, got an empty text" : "");
  };
  for (const auto& [name, place, help] :
       {std::tuple{"--model", &options.model,
                   "a folder or a preset: the same as --set model.path= or model.preset="},
        {"--steps", &options.steps, "the same as --set train.steps="},
        {"--batch", &options.batch, "the same as --set train.batch="},
        {"--lr", &options.lr, "the same as --set train.lr="}}) {
    command.add_option(name, *place, help).check(not_empty);
  }
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
