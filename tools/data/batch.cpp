// Contract: tools/data/batch.h.
#include "tools/data/batch.h"

namespace fsdp::data {
namespace {

// `width` values a row; nothing where the batch has nothing.
template <typename T>
std::vector<T> rows_of(const std::vector<T>& all, const RowRange& range, int64_t width) {
  if (all.empty()) return {};
  const auto begin = all.begin() + range.first * width;
  return {begin, begin + range.count * width};
}

}  // namespace

Batch rows_of(const Batch& batch, const RowRange& range) {
  return {.rows = range.count,
          .length = batch.length,
          .tokens = rows_of(batch.tokens, range, batch.length),
          .labels = rows_of(batch.labels, range, batch.length),
          .samples = rows_of(batch.samples, range, 1),
          .mask = rows_of(batch.mask, range, batch.length),
          .global_label_tokens = batch.global_label_tokens,
          .gradient_factor = batch.gradient_factor};
}

}  // namespace fsdp::data
