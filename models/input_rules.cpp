// Contract: models/input_rules.h.
#include "models/input_rules.h"

#include <algorithm>

#include "core/error.h"
#include "core/ops/cross_entropy.h"

namespace fsdp::models {

InputRules input_rules(const ModelConfig& config) {
  const bool pads = config.position_offset > 0;
  return {.shifted_labels = config.shifted_labels,
          .padding = pads ? static_cast<int32_t>(config.padding_row) : -1,
          .first_position = static_cast<int32_t>(config.position_offset)};
}

std::vector<int32_t> shifted_labels(const std::vector<int32_t>& labels, int64_t rows,
                                    int64_t length) {
  FSDP_CHECK(static_cast<int64_t>(labels.size()) == rows * length,
             "[labels] expected {} x {} values, got {}", rows, length, labels.size());
  std::vector<int32_t> shifted(labels.size(), kIgnoreIndex);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t t = 0; t + 1 < length; ++t) {
      const size_t i = static_cast<size_t>(row * length + t);
      shifted[i] = labels[i + 1];
    }
  }
  return shifted;
}

void check_documents(const std::vector<int32_t>& first_key, int64_t length) {
  for (size_t i = 0; i < first_key.size(); ++i) {
    const int64_t t = static_cast<int64_t>(i) % length;
    FSDP_CHECK(first_key[i] == t || (t > 0 && first_key[i] == first_key[i - 1]),
               "[first_key] token {} of row {}: expected {}, where a document begins, or the value "
               "of the token in front, got {}",
               t, static_cast<int64_t>(i) / length, t, first_key[i]);
  }
}

void ignore_first_labels(std::vector<int32_t>& labels, const std::vector<int32_t>& first_key,
                         int64_t length) {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (first_key[i] == static_cast<int64_t>(i) % length) labels[i] = kIgnoreIndex;
  }
}

std::vector<int32_t> document_positions(const InputRules& rules,
                                        const std::vector<int32_t>& first_key, int64_t length) {
  std::vector<int32_t> out(first_key.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const auto t = static_cast<int32_t>(i % static_cast<size_t>(length));
    out[i] = rules.first_position + t - first_key[i];
  }
  return out;
}

int64_t document_pairs(const std::vector<int32_t>& first_key, int64_t length) {
  int64_t pairs = 0;
  for (size_t i = 0; i < first_key.size(); ++i) {
    pairs += static_cast<int64_t>(i) % length - first_key[i] + 1;
  }
  return pairs;
}

std::vector<int32_t> padding_mask(const InputRules& rules, const std::vector<int32_t>& tokens,
                                  const std::vector<int32_t>& mask) {
  FSDP_CHECK(mask.empty() || mask.size() == tokens.size(),
             "[attention_mask] expected {} values, got {}", tokens.size(), mask.size());
  const auto pads = [&](int32_t token) { return rules.is_padding(token); };
  if (std::none_of(tokens.begin(), tokens.end(), pads)) return mask;
  std::vector<int32_t> all = mask;
  all.resize(tokens.size(), 1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (pads(tokens[i])) all[i] = 0;
  }
  return all;
}

std::vector<int32_t> predicted_targets(const InputRules& rules, std::vector<int32_t> targets,
                                       const std::vector<int32_t>& mask, int64_t length) {
  // Who made a mask made its labels, too; no labels, no targets.
  if (!rules.knows_padding() || targets.empty()) return targets;
  for (int32_t& target : targets) {
    if (rules.is_padding(target)) target = kIgnoreIndex;
  }
  bool seen = false;
  for (size_t i = 0; i < mask.size(); ++i) {
    seen = (seen && i % static_cast<size_t>(length) != 0) || mask[i] != 0;
    if (!seen) targets[i] = kIgnoreIndex;
  }
  return targets;
}

std::vector<int32_t> counted_positions(const InputRules& rules, const std::vector<int32_t>& mask,
                                       int64_t length) {
  std::vector<int32_t> out(mask.size(), std::max(rules.first_position - 1, 0));
  int32_t seen = 0;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (i % static_cast<size_t>(length) == 0) seen = 0;
    if (mask[i] != 0) out[i] = rules.first_position + seen++;
  }
  return out;
}

}  // namespace fsdp::models
