// Contract: tools/config/list_items.h.
#include "tools/config/list_items.h"

#include <yaml-cpp/yaml.h>

#include "core/io/odd_bytes.h"

namespace fsdp::config {

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

}  // namespace fsdp::config
