// Contract: tools/config/effects.h.
#include "tools/config/effects.h"

namespace fsdp::config {
namespace {

std::set<std::string> without_effect(const TrainConfig& config) {
  std::set<std::string> keys;
  for (const KeyWithoutEffect& each : keys_without_effect(config)) keys.insert(each.key);
  return keys;
}

}  // namespace

void Effects::add_layer(const TrainConfig& all, const TrainConfig& alone, bool typed) {
  const std::set<std::string> here = without_effect(all), by_itself = without_effect(alone);
  for (const auto& [key, place] : alone.places) {
    lost_by_.erase(key);
    const bool lost = here.contains(key);
    if (lost && (typed || by_itself.contains(key))) {
      had_.erase(key);
    } else {
      had_.insert(key);
    }
    if (lost) lost_by_[key] = "";
  }
}

void Effects::look(const TrainConfig& all, const std::string& by) {
  const std::set<std::string> lost = without_effect(all);
  for (const std::string& key : had_) {
    if (lost.contains(key)) {
      lost_by_.try_emplace(key, by);
    } else {
      lost_by_.erase(key);
    }
  }
}

std::string Effects::lost_by(const std::string& key) const {
  const auto found = lost_by_.find(key);
  return found == lost_by_.end() ? "" : found->second;
}

}  // namespace fsdp::config
