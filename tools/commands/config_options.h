// The options by which a command reads the configuration of a run: a file, keys, and flags that are
// short for keys.
#pragma once

#include <deque>
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

}  // namespace fsdp::tools
