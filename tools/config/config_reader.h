// One YAML map, or one override, read over a configuration: for config_layers.cpp. Everybody else
// reads all layers of a configuration (config.h).
#pragma once

#include <string>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "tools/config/config.h"

namespace fsdp::config {

// Where a node came from.
struct Source {
  std::string name;        // file, or what was typed
  bool has_lines = false;  // of a file
  std::string raw;         // of an override: the text after '='

  std::string at(const YAML::Node& node) const {
    if (!has_lines || node.Mark().is_null()) return name;
    return fmt::format("{}:{}", name, node.Mark().line + 1);
  }
  // Hydra's sweep of an override: a.b=1,2
  bool has_several_values() const { return !has_lines && raw.find(',') != std::string::npos; }
};

std::string text_of(const YAML::Node& node);  // for errors: "a list", "\"value\""
// The documents of a file. Errors name the file and the line.
std::vector<YAML::Node> load(const std::string& text, const Source& source);
// What the map gives takes the place of what `config` has, and its place is noted there. Error for
// a key that is none, or a value of another type.
void read_into(TrainConfig& config, const YAML::Node& node, const Source& source);
// The same for "a.b=c".
void apply_override(TrainConfig& config, const Override& given);

}  // namespace fsdp::config
