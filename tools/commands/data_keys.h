// Options by which a command takes keys of `data` as a run does: a configuration file, and --set.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/commands/options.h"
#include "tools/config/config.h"

namespace fsdp::tools {

struct DataKeys {
  std::string config;                  // "": defaults and overrides
  std::vector<std::string> overrides;  // of --set
  bool given() const { return !config.empty() || !overrides.empty(); }
};
struct DataKeyOptions {
  Option config, set;
};
// `files`: which keys a file gives, for the help: "data.validation".
DataKeyOptions add_data_key_options(const Command& command, const std::string& files,
                                    DataKeys& keys);

// The configuration, with paths resolved; `more` count more. Error for a --set of another section,
// and of one of `unused`, keys that would be ignored in silence: "data.shuffle". Hands notes on
// files that are left out to `note`.
config::TrainConfig read_data_keys(const DataKeys& keys, const std::vector<config::Override>& more,
                                   const std::vector<std::string>& unused,
                                   const std::function<void(const std::string&)>& note);

}  // namespace fsdp::tools
