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

void Effects::add_layer(const TrainConfig& all, const TrainConfig& alone, LayerKind kind) {
  const std::set<std::string> here = without_effect(all), by_itself = without_effect(alone);
  for (const auto& [key, place] : alone.places) {
    lost_by_.erase(key);
    const bool lost = here.contains(key);
    const bool had = !lost || kind == LayerKind::kSweep ||
                     (kind == LayerKind::kFile && !by_itself.contains(key));
    if (had) {
      never_.erase(key);
    } else {
      never_.insert(key);
    }
    if (lost) lost_by_[key] = "";
  }
}

void Effects::look(const TrainConfig& all, const std::string& by) {
  const std::set<std::string> lost = without_effect(all);
  const auto has_effect = [&](const auto& item) { return !lost.contains(item); };
  std::erase_if(never_, has_effect);
  std::erase_if(lost_by_, [&](const auto& item) { return has_effect(item.first); });
  for (const std::string& key : lost) lost_by_.try_emplace(key, by);
}

std::string Effects::lost_by(const std::string& key) const {
  const auto found = lost_by_.find(key);
  return found == lost_by_.end() ? "" : found->second;
}

}  // namespace fsdp::config
