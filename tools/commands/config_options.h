// The options by which a command reads the configuration of a run: a file, keys, and short forms of
// the keys that everybody sets.
#pragma once

#include <string>
#include <vector>

#include "tools/commands/options.h"

namespace fsdp::tools {

struct ConfigOptions {
  std::string config;                  // "": defaults and overrides
  std::string model;                   // of --model
  std::vector<std::string> overrides;  // of --set
  std::string steps, batch, lr;        // "": not given
  std::vector<std::string> data;
};
void add_config_options(const Command& command, ConfigOptions& options);

// All of them as texts of --set, the short forms last. Error for a model that is none.
std::vector<std::string> overrides_of(const ConfigOptions& options);

}  // namespace fsdp::tools
