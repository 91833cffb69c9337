// Translation by the tables of the families.
#include "models/names.h"

#include "core/error.h"
#include "models/family.h"

namespace fsdp::models {
namespace {

std::string translate(std::span<const NamePair> pairs, std::string_view name) {
  for (const NamePair& pair : pairs) {
    if (name.starts_with(pair.ours)) {
      return std::string(pair.theirs) + std::string(name.substr(pair.ours.size()));
    }
  }
  fail("[names] {}: no Hugging Face name", name);
}

}  // namespace

std::string hugging_face_name(const ModelConfig& config, std::string_view parameter) {
  const NameTable& table = family_of(config.family).names;
  constexpr std::string_view kBlocks = "blocks.";
  if (!parameter.starts_with(kBlocks)) return translate(table.root, parameter);
  const size_t dot = parameter.find('.', kBlocks.size());
  const std::string_view index = parameter.substr(kBlocks.size(), dot - kBlocks.size());
  return fmt::format("{}{}{}.{}", table.prefix, table.block_prefix, index,
                     translate(table.block, parameter.substr(dot + 1)));
}

std::string_view base_prefix(const ModelConfig& config) { return family_of(config.family).names.prefix; }

bool is_ignorable(const ModelConfig& config, std::string_view file_name) {
  for (const std::string_view ending : family_of(config.family).names.ignorable) {
    if (file_name.ends_with(ending)) return true;
  }
  return config.tied_head && file_name == hugging_face_name(config, "head.weight");
}

}  // namespace fsdp::models
