// Contract: models/token_padding.h.
#include "models/token_padding.h"

#include <algorithm>

#include "core/error.h"
#include "core/ops/cross_entropy.h"

namespace fsdp::models {

bool is_padding(const ModelConfig& config, int32_t token) {
  return config.position_offset > 0 && token == config.padding_row;
}

std::vector<int32_t> padding_mask(const ModelConfig& config, const std::vector<int32_t>& tokens,
                                  const std::vector<int32_t>& mask) {
  FSDP_CHECK(mask.empty() || mask.size() == tokens.size(),
             "[attention_mask] expected {} values, got {}", tokens.size(), mask.size());
  const auto pads = [&](int32_t token) { return is_padding(config, token); };
  if (std::none_of(tokens.begin(), tokens.end(), pads)) return mask;
  std::vector<int32_t> all = mask;
  all.resize(tokens.size(), 1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (pads(tokens[i])) all[i] = 0;
  }
  return all;
}

void ignore_leading_padding(const ModelConfig& config, const std::vector<int32_t>& mask,
                            int64_t length, std::vector<int32_t>& targets) {
  if (config.position_offset == 0) return;  // a mask alone: whoever made it made the labels too
  bool seen = false;
  for (size_t i = 0; i < mask.size(); ++i) {
    seen = (seen && i % static_cast<size_t>(length) != 0) || mask[i] != 0;
    if (!seen) targets[i] = kIgnoreIndex;
  }
}

std::vector<int32_t> counted_positions(const ModelConfig& config, const std::vector<int32_t>& mask,
                                       int64_t length) {
  const auto first = static_cast<int32_t>(config.position_offset);
  std::vector<int32_t> out(mask.size(), std::max(first - 1, 0));
  int32_t seen = 0;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (i % static_cast<size_t>(length) == 0) seen = 0;
    if (mask[i] != 0) out[i] = first + seen++;
  }
  return out;
}

}  // namespace fsdp::models
