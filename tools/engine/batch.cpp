// Contract: tools/engine/batch.h.
#include "tools/engine/batch.h"

#include <algorithm>

#include "core/error.h"
#include "core/layer_values.h"

namespace fsdp {
namespace {

// `width` values a row; nothing where the batch has nothing.
template <typename T>
std::vector<T> rows_of(const std::vector<T>& all, const RowRange& range, int64_t width) {
  if (all.empty()) return {};
  const auto begin = all.begin() + range.first * width;
  return {begin, begin + range.count * width};
}

// A model that finds padding by itself hides it; in documents only what is behind all else is
// hidden.
void check_padding(const LabelledRows& rows, const models::InputRules& rules) {
  FSDP_CHECK(rows.mask.empty(), "[batch] first_key: expected no mask: padding is a document");
  for (size_t i = 1; i < rows.first_key.size(); ++i) {
    const bool goes_on = rows.first_key[i] != static_cast<int64_t>(i) % rows.length;
    FSDP_CHECK(
        !goes_on || !rules.is_padding(rows.tokens[i - 1]) || rules.is_padding(rows.tokens[i]),
        "[batch] first_key: expected padding behind a document, got it within one, in row {}",
        static_cast<int64_t>(i) / rows.length);
  }
}

}  // namespace

Batch make_batch(LabelledRows rows, const models::InputRules& rules, int64_t global_label_tokens) {
  const int64_t count = rows.rows();
  const auto check = [](std::string_view what, size_t got, int64_t expected, bool may_be_absent) {
    FSDP_CHECK((may_be_absent && got == 0) || static_cast<int64_t>(got) == expected,
               "[batch] {}: expected {} values, got {}", what, expected, got);
  };
  check("tokens", rows.tokens.size(), count * rows.length, false);
  check("labels", rows.labels.size(), count * rows.length, true);
  check("mask", rows.mask.size(), count * rows.length, true);
  check("samples", rows.samples.size(), count, true);
  check("first_key", rows.first_key.size(), count * rows.length, true);
  const bool documents = !rows.first_key.empty();
  if (documents) {
    models::check_documents(rows.first_key, rows.length);
    check_padding(rows, rules);
  }
  if (rules.shifted_labels && !rows.labels_are_targets && !rows.labels.empty()) {
    if (documents) models::ignore_first_labels(rows.labels, rows.first_key, rows.length);
    rows.labels = models::shifted_labels(rows.labels, count, rows.length);
  }
  Batch out = {.rows = count,
               .length = rows.length,
               .samples = std::move(rows.samples),
               .global_label_tokens = global_label_tokens};
  if (documents) {
    out.positions = models::document_positions(rules, rows.first_key, rows.length);
  } else {
    out.mask = models::padding_mask(rules, rows.tokens, rows.mask);
  }
  out.targets = models::predicted_targets(rules, std::move(rows.labels), out.mask, rows.length);
  if (!out.mask.empty() && rules.first_position > 0) {  // [Note: fairseq's padding]
    out.positions = models::counted_positions(rules, out.mask, rows.length);
  }
  out.tokens = std::move(rows.tokens);
  out.first_key = std::move(rows.first_key);
  return out;
}

int64_t count_targets(const Batch& batch) {
  return std::count_if(batch.targets.begin(), batch.targets.end(),
                       [](int32_t target) { return target != kIgnoreIndex; });
}

RowRange rows_of_part(const Batch& batch, int part, int parts) {
  if (batch.rows_per_pass == 0) return deal_rows(batch.rows, part, parts);
  const int64_t first = std::min(part * batch.rows_per_pass, batch.rows);
  return {first, std::min(batch.rows_per_pass, batch.rows - first)};
}

int ranks_with_pass(const Batch& batch, int part, int ranks) {
  if (batch.rows_per_pass == 0) return ranks;
  return static_cast<int>(std::clamp<int64_t>(batch.passes - int64_t{part} * ranks, 0, ranks));
}

Batch rows_of(const Batch& batch, const RowRange& range) {
  Batch out = {.rows = range.count,
               .length = batch.length,
               .tokens = rows_of(batch.tokens, range, batch.length),
               .targets = rows_of(batch.targets, range, batch.length),
               .samples = rows_of(batch.samples, range, 1),
               .mask = rows_of(batch.mask, range, batch.length),
               .positions = rows_of(batch.positions, range, batch.length),
               .first_key = rows_of(batch.first_key, range, batch.length),
               .global_label_tokens = batch.global_label_tokens,
               .rows_per_pass = batch.rows_per_pass,
               .passes = batch.passes,
               .gradient_factor = batch.gradient_factor};
  const bool hides = std::find(out.mask.begin(), out.mask.end(), 0) != out.mask.end();
  if (!out.positions.empty() && out.first_key.empty() && !hides) {
    out.mask.clear();
    out.positions.clear();
  }
  return out;
}

}  // namespace fsdp
