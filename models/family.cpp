// The list of families, and what is found by a walk over it.
#include "models/family.h"

#include <array>

#include "core/error.h"
#include "core/io/hub_files.h"
#include "models/hub_names.h"

namespace fsdp::models {

const Json& families_json();  // families/families.json

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

const Json& data_of(const Family& family) { return families_json()[family.name]; }

const Json& names_of(const Family& family) {
  const Json& data = data_of(family);
  const Json* const other = data.find("names_of");
  return other ? families_json()[other->text()] : data;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Family* family : families()) {
    for (const Json& preset : data_of(*family)["presets"]) names.push_back(preset["name"].text());
  }
  return names;
}

namespace {

void set_sizes(const Json& preset, ModelConfig& c) {
  int64_t* const sizes[] = {&c.vocabulary, &c.hidden, &c.layers,       &c.heads,
                            &c.kv_heads,   &c.ffn,    &c.max_positions};
  for (size_t i = 0; i < std::size(sizes); ++i) *sizes[i] = preset["sizes"][i];
  c.head_dim = c.hidden / c.heads;
  c.norm_epsilon = preset.value("norm_epsilon", c.norm_epsilon);
  c.rope.theta = preset.value("rope_theta", c.rope.theta);
  c.window = preset.value("window", c.window);
  c.tied_head = preset.value("tied_head", c.tied_head);
  if (const Json* factor = preset.find("llama3_factor")) {
    c.rope.scaling = RopeConfig::Scaling::kLlama3;
    c.rope.factor = *factor;
  }
  if (const Json* name = preset.find("activation")) c.activation = activation_named(name->text());
}

}  // namespace

ModelConfig preset(const std::string& name) {
  for (const Family* family : families()) {
    for (const Json& preset : data_of(*family)["presets"]) {
      if (preset["name"] != name) continue;
      ModelConfig config = family_defaults(std::string(family->name));
      set_sizes(preset, config);
      if (family->complete) family->complete(config);
      return config;
    }
  }
  if (const std::string near = nearest_preset(name); !near.empty()) {
    fail("preset: unknown name \"{}\"; {}{}", name, near, how_to_fetch(name));
  }
  fail("preset: expected one of {}, got \"{}\"", fmt::join(preset_names(), ", "), name);
}

}  // namespace fsdp::models
