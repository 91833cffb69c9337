// Sizes by name.
#include "tools/bench/kernel_extents.h"

#include <charconv>
#include <filesystem>
#include <map>
#include <vector>

#include <fmt/ranges.h>

namespace fsdp::tools {
namespace {

models::ModelConfig model_named(const std::string& name) {
  if (std::filesystem::is_directory(name)) return models::read_config(name + "/config.json");
  return models::preset(name);
}

std::map<std::string, int64_t*> sizes_by_name(KernelExtents& extents) {
  models::ModelConfig& model = extents.model;
  return {
      {"hidden", &model.hidden},      {"heads", &model.heads}, {"kv_heads", &model.kv_heads},
      {"head_dim", &model.head_dim},  {"ffn", &model.ffn},     {"vocabulary", &model.vocabulary},
      {"elements", &extents.elements}};
}

// One of "hidden=1024".
void change_size(const std::string& text, const std::map<std::string, int64_t*>& sizes) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const auto found = sizes.find(name);
  if (found == sizes.end()) {
    std::vector<std::string> names;
    for (const auto& [known, size] : sizes) names.push_back(known);
    fail("--shape: expected NAME=NUMBER with one of {}; got \"{}\"", fmt::join(names, ", "), text);
  }
  const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
  const char* const end = value.data() + value.size();
  const auto [rest, error] = std::from_chars(value.data(), end, *found->second);
  FSDP_CHECK(error == std::errc() && rest == end && *found->second > 0,
             "--shape: {}: expected a positive number, got \"{}\"", name, value);
}

}  // namespace

KernelExtents kernel_extents(const KernelExtentsOptions& options) {
  KernelExtents extents = {.model = model_named(options.model),
                           .batch = options.batch,
                           .length = options.length,
                           .compute = options.dtype,
                           .gradient = accumulation_dtype(options.dtype)};
  const std::map<std::string, int64_t*> sizes = sizes_by_name(extents);
  for (size_t begin = 0; begin < options.shape.size();) {
    const size_t end = std::min(options.shape.find(',', begin), options.shape.size());
    change_size(options.shape.substr(begin, end - begin), sizes);
    begin = end + 1;
  }
  const models::ModelConfig& model = extents.model;
  models::validate(model);
  if (extents.elements == 0) extents.elements = model.parameter_count() / (model.layers + 1);
  const bool learned = model.positions == models::PositionKind::kLearned;
  FSDP_CHECK(!learned || options.length <= model.max_positions,
             "--seq: expected at most the {} positions of {}, got {}", model.max_positions,
             options.model, options.length);
  return extents;
}

}  // namespace fsdp::tools
