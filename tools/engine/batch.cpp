// Contract: tools/engine/batch.h.
#include "tools/engine/batch.h"

namespace fsdp {
namespace {

// `width` values a row; nothing where the batch has nothing.
template <typename T>
std::vector<T> rows_of(const std::vector<T>& all, const RowRange& range, int64_t width) {
  if (all.empty()) return {};
  const auto begin = all.begin() + range.first * width;
  return {begin, begin + range.count * width};
}

}  // namespace

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
  return {.rows = range.count,
          .length = batch.length,
          .tokens = rows_of(batch.tokens, range, batch.length),
          .labels = rows_of(batch.labels, range, batch.length),
          .samples = rows_of(batch.samples, range, 1),
          .mask = rows_of(batch.mask, range, batch.length),
          .labels_are_targets = batch.labels_are_targets,
          .global_label_tokens = batch.global_label_tokens,
          .rows_per_pass = batch.rows_per_pass,
          .passes = batch.passes,
          .gradient_factor = batch.gradient_factor};
}

}  // namespace fsdp
