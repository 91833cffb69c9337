// Contract: tools/commands/data_keys.h.
#include "tools/commands/data_keys.h"

#include <algorithm>

#include "core/error.h"
#include "tools/train/data_paths.h"

namespace fsdp::tools {

DataKeyOptions add_data_key_options(const Command& command, const std::string& files,
                                    DataKeys& keys) {
  const Option config =
      command
          .add_option("--config", keys.config,
                      "YAML file of fsdp train: its data section, with the files of " + files)
          .readable();
  const Option set = command.add_option("--set", keys.overrides,
                                        "keys of data, as of fsdp train: data.objective=sft");
  return {config, set};
}

config::TrainConfig read_data_keys(const DataKeys& keys, const std::vector<config::Override>& more,
                                   const std::vector<std::string>& unused,
                                   const std::function<void(const std::string&)>& note) {
  for (const std::string& text : keys.overrides) {
    const std::string key = text.substr(0, text.find('='));
    FSDP_CHECK(key.starts_with("data.") || key == "train.seed",
               "--set {}: expected a key of data, or train.seed", text);
    FSDP_CHECK(std::find(unused.begin(), unused.end(), key) == unused.end(),
               "--set {}: {} has no effect here, where data is read once and in order", text, key);
  }
  std::vector<config::Override> all(keys.overrides.begin(), keys.overrides.end());
  all.insert(all.end(), more.begin(), more.end());
  config::TrainConfig config = config::read_config(keys.config, all);
  for (const std::string& text : config.notes) note(text);
  const std::optional<data::PadSide> side = config.data.pad;
  for (const std::string& text : resolve_paths(config, keys.config)) note(text);
  config.data.pad = side;  // where it is open, TrainData asks the tokenizer that it gets
  return config;
}

}  // namespace fsdp::tools
