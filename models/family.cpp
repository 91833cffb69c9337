// The list of families, and what is found by a walk over it.
#include "models/family.h"

#include <array>

#include "core/error.h"
#include "core/io/hub_files.h"
#include "models/hub_names.h"

namespace fsdp::models {

std::span<const Family* const> families() {
  static constexpr std::array kAll = {
      &family::kGpt2,  &family::kLlama,   &family::kMistral,     &family::kQwen2,
      &family::kBloom, &family::kGptNeox, &family::kFairseqGpt3, &family::kWorkshopGpt};
  return kAll;
}

const Family& family_of(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Family* family : families()) {
    if (family->name == name) return *family;
    known.push_back(family->name);
  }
  fail("model family: expected one of {}, got \"{}\"", fmt::join(known, ", "), name);
}

ModelConfig family_defaults(const std::string& name) {
  ModelConfig config = family_of(name).defaults();
  config.family = name;
  return config;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Family* family : families()) {
    for (const Preset& preset : family->presets) names.emplace_back(preset.name);
  }
  return names;
}

ModelConfig preset(const std::string& name) {
  for (const Family* family : families()) {
    for (const Preset& p : family->presets) {
      if (name != p.name) continue;
      ModelConfig config = family_defaults(std::string(family->name));
      config.vocabulary = p.vocabulary;
      config.hidden = p.hidden;
      config.layers = p.layers;
      config.heads = p.heads;
      config.kv_heads = p.kv_heads;
      config.head_dim = p.hidden / p.heads;
      config.ffn = p.ffn;
      config.max_positions = p.max_positions;
      if (p.more) p.more(config);
      return config;
    }
  }
  if (const std::string near = nearest_preset(name); !near.empty()) {
    fail("preset: unknown name \"{}\"; {}{}", name, near, how_to_fetch(name));
  }
  fail("preset: expected one of {}, got \"{}\"", fmt::join(preset_names(), ", "), name);
}

}  // namespace fsdp::models
