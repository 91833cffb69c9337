// Contract: tools/commands/config_options.h.
#include "tools/commands/config_options.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/io/json.h"
#include "tools/commands/commands.h"
#include "tools/train/data_paths.h"
#include "tools/train/model_shape.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {

void add_config_options(const Command& command, const std::vector<FlagOf>& which,
                        ConfigOptions& options) {
  command.add("@config", {{"--config", &options.config},
                          {"--data", &options.data},
                          {"--model", &options.models},
                          {"--set", &options.overrides}});
  add_listed_flags(command, which, options.flags);
}

std::vector<config::Override> overrides_of(const ConfigOptions& options) {
  std::vector<config::Override> all(options.overrides.begin(), options.overrides.end());
  for (const std::string& model : options.models) {
    all.emplace_back(model_override(model), "--model " + model);
  }
  add_override("data.train", "--data", options.data, all);
  for (const KeyFlag& flag : options.flags) {
    for (config::Override& each : overrides_of(flag)) all.push_back(std::move(each));
  }
  return all;
}

config::TrainConfig read_for_prediction(const ConfigOptions& options, config::ModelSection* asked) {
  config::TrainConfig config = config::read_config(options.config, overrides_of(options));
  resolve_paths(config, options.config);
  for (const std::string& note : config.notes) print_note(note);
  if (asked) *asked = config.model;
  for (const std::string& note : take_published_sizes(config)) print_note(note);
  return config;
}

void add_data_key_options(const Command& command, const std::string& files, DataKeys& keys) {
  command.add("@data keys", {{.name = "--config", .target = &keys.config, .shown = files},
                             {"--set", &keys.overrides}});
}

// As a list of quoted texts, which is JSON and YAML: a name may hold commas and brackets.
void add_override(const std::string& key, const std::string& flag,
                  const std::vector<std::string>& files, std::vector<config::Override>& all) {
  if (files.empty()) return;
  all.emplace_back(key + "=" + Json(files).dump(),
                   fmt::format("{} {}", flag, fmt::join(files, " ")));
}

void add_override(const std::string& key, const std::string& flag, const std::string& text,
                  std::vector<config::Override>& all) {
  if (!text.empty()) all.emplace_back(key + "=" + text, flag + " " + text);
}

config::TrainConfig read_data_keys(const DataKeys& keys, const std::vector<config::Override>& more,
                                   const std::function<void(const std::string&)>& note) {
  constexpr std::array kUnused = {"data.shuffle", "data.shuffle_rule", "data.set_epoch",
                                  "data.last_batch", "data.prefetch"};
  for (const std::string& text : keys.overrides) {
    const std::string key = text.substr(0, text.find('='));
    FSDP_CHECK(key.starts_with("data.") || key == "train.seed",
               "--set {}: expected a key of data, or train.seed", text);
    FSDP_CHECK(std::find(kUnused.begin(), kUnused.end(), key) == kUnused.end(),
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

config::TrainConfig read_data_to_look_at(const DataKeys& keys,
                                         const std::vector<std::string>& files,
                                         const std::string& tokenizer) {
  std::vector<config::Override> more;
  add_override("data.train", "--data", files, more);
  add_override("data.tokenizer", "--tokenizer", tokenizer, more);
  config::TrainConfig config = read_data_keys(keys, more, print_note);
  FSDP_CHECK(!config.data.synthetic(), "data.format: synthetic data has no text to tokenize");
  config.data.shuffle = false;
  config.data.shuffle_rule = data::ShuffleRule::kFeistel;
  config.train.batch = 1;
  config.train.rows_per_pass = 0;
  config.train.micro_steps.reset();
  return config;
}

}  // namespace fsdp::tools
