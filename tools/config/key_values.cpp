// Contract: tools/config/key_values.h.
#include "tools/config/key_values.h"

#include <cstdlib>

#include <yaml-cpp/yaml.h>

#include "core/io/odd_bytes.h"
#include "tools/config/options.h"

namespace fsdp::config {

std::vector<std::pair<std::string, std::string>> key_values(const TrainConfig& config) {
  TrainConfig copy = config;  // visitors take fields by reference
  std::vector<std::pair<std::string, std::string>> all;
  for (const Option& option : options(copy)) all.emplace_back(option.key, option.value.text());
  return all;
}

std::vector<std::string> keys_of_each_rank() {
  TrainConfig defaults;
  std::vector<std::string> own;
  for (const Option& option : options(defaults)) {
    if (option.about.of_rank) own.push_back(option.key);
  }
  return own;
}

std::optional<std::vector<std::string>> list_items(const std::string& yaml) {
  try {
    const YAML::Node list = YAML::Load(with_stand_ins(yaml));
    if (!list.IsSequence() || list.size() == 0) return {};
    std::vector<std::string> items;
    for (const YAML::Node& item : list) {
      YAML::Emitter text;
      text << YAML::Flow << item;
      items.emplace_back(text.c_str());
    }
    return items;
  } catch (const YAML::Exception&) {
    return {};
  }
}

std::string with_home(const std::string& path) {
  const bool own = path == "~" || path.starts_with("~/");
  const char* const home = own ? std::getenv("HOME") : nullptr;
  return home == nullptr ? path : home + path.substr(1);
}

}  // namespace fsdp::config
