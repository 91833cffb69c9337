// The options by which a command reads the configuration of a run, or its keys of `data` alone: a
// file, keys, and flags that are short for keys.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "tools/commands/listed_flags.h"

namespace fsdp::tools {

struct ConfigOptions {
  std::string config;                  // "": defaults and overrides
  std::vector<std::string> models;     // of --model
  std::vector<std::string> overrides;  // of --set
  std::vector<std::string> data;
  std::deque<KeyFlag> flags;  // the others
};
// With the flags of `which`.
void add_config_options(const Command& command, const std::vector<FlagOf>& which,
                        ConfigOptions& options);

// All of them. Error for a model that is none.
std::vector<config::Override> overrides_of(const ConfigOptions& options);

// The configuration for a prediction of it, which needs no weights: with paths resolved and the
// sizes of a hub's name. `asked`: which model it names. Notes are printed.
config::TrainConfig read_for_prediction(const ConfigOptions& options,
                                        config::ModelSection* asked = nullptr);

struct DataKeys {
  std::string config;                  // "": defaults and overrides
  std::vector<std::string> overrides;  // of --set
  bool given() const { return !config.empty() || !overrides.empty(); }
};
// `files`: which keys a file gives, for the help: "data.validation".
void add_data_key_options(const Command& command, const std::string& files, DataKeys& keys);

// For options that stand for a key, where files or a text were given: `key`=... .
void add_override(const std::string& key, const std::string& flag,
                  const std::vector<std::string>& files, std::vector<config::Override>& all);
void add_override(const std::string& key, const std::string& flag, const std::string& text,
                  std::vector<config::Override>& all);

// The configuration, with paths resolved; `more` count more. Error for a --set of another section,
// and for a key that says in which order data is read, which would be ignored in silence. Hands
// notes on files that are left out to `note`.
config::TrainConfig read_data_keys(const DataKeys& keys, const std::vector<config::Override>& more,
                                   const std::function<void(const std::string&)>& note);

// The same, to look at the training data: one sequence a step, in the order of the files.
config::TrainConfig read_data_to_look_at(const DataKeys& keys,
                                         const std::vector<std::string>& files,
                                         const std::string& tokenizer);

}  // namespace fsdp::tools
