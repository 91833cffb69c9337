// Flags of commands from the list of options (tools/config/options.h): their names, values,
// ranges and help. Not here: flags that are no options of the configuration.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "tools/commands/options.h"
#include "tools/config/config.h"
#include "tools/launch/option_field.h"

namespace fsdp::tools {

// The flag of a key: "--share-gpus" of "runtime.share_gpus".
std::string flag_name(const std::string& key);

// For commands without a configuration: each flag sets its member.
void add_listed_flags(const Command& command, const std::vector<FlagOf>& which,
                      LaunchOptions& options);

// For train and explain: what was given for a flag that is short for --set of its key.
struct KeyFlag {
  std::string key;
  bool is_switch = false;  // --trace, without a value
  std::vector<std::string> values;
};
// `flags` keeps its place while arguments are parsed.
void add_listed_flags(const Command& command, const std::vector<FlagOf>& which,
                      std::deque<KeyFlag>& flags);
std::vector<config::Override> overrides_of(const KeyFlag& flag);

}  // namespace fsdp::tools
