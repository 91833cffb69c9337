// Contract: tools/data/row_layout.h.
#include "tools/data/row_layout.h"

#include <algorithm>
#include <vector>

#include "core/layer_values.h"

namespace fsdp::data {
namespace {

using Ids = std::vector<int32_t>;

int64_t size_of(std::span<const int32_t> ids) { return static_cast<int64_t>(ids.size()); }

// The row's tokens as the model reads them, without padding.
std::span<const int32_t> asked(const Example& example, Objective objective) {
  const bool pair = objective == Objective::kApart;
  return example.tokens.first(
      static_cast<size_t>(size_of(example.tokens) - (pair ? example.answer : 0)));
}

// The end of the first part is cut; the others only where there is no first part left.
Ids cut(std::span<const int32_t> tokens, int64_t kept, int64_t most) {
  if (size_of(tokens) <= most) return {tokens.begin(), tokens.end()};
  const int64_t first = std::max<int64_t>(most - kept, 0);
  Ids out(tokens.begin(), tokens.begin() + first);
  const auto tail = tokens.end() - kept;
  out.insert(out.end(), tail, tail + std::min(kept, most));
  return out;
}

// `values` with `padding` before or behind them.
void append_padded(const Ids& values, int32_t padding, int64_t length, PadSide side, Ids& out) {
  const size_t missing = static_cast<size_t>(length) - values.size();
  if (side == PadSide::kLeft) out.insert(out.end(), missing, padding);
  out.insert(out.end(), values.begin(), values.end());
  if (side == PadSide::kRight) out.insert(out.end(), missing, padding);
}

// Of a row whose labels are its own tokens; without its padding.
Ids labels_of(const Ids& tokens, const Example& example, const RowLayout& layout,
              bool after_padding) {
  Ids labels = tokens;
  const int64_t length = size_of(tokens);
  if (layout.objective == Objective::kSft) {
    // Where only the answer is left its end is cut.
    const int64_t lost = std::max<int64_t>(example.kept - length, 0);
    const int64_t trained = std::max<int64_t>(example.answer - lost, 0);
    std::fill(labels.begin(), labels.end() - std::min(trained, length), kIgnoreIndex);
  }
  if (layout.objective == Objective::kMaskPad) {
    std::replace(labels.begin(), labels.end(), layout.pad_token, kIgnoreIndex);
  }
  if (after_padding && !is_compat(layout.objective) && !labels.empty()) {
    labels.front() = kIgnoreIndex;
  }
  return labels;
}

}  // namespace

int64_t tokens_of(const Example& example, int64_t most, Objective objective) {
  return std::min(size_of(asked(example, objective)), most);
}

void append_row(const Example& example, int64_t length, const RowLayout& layout,
                const models::InputRules& rules, LabelledRows& out) {
  const Ids tokens = cut(asked(example, layout.objective), example.kept, length);
  append_padded(tokens, layout.pad_token, length, layout.side, out.tokens);
  append_padded(Ids(tokens.size(), 1), 0, length, layout.side, out.mask);
  if (layout.objective == Objective::kApart) {
    const auto said = example.tokens.last(static_cast<size_t>(example.answer));
    Ids labels = cut(said, 0, length);
    std::replace(labels.begin(), labels.end(), layout.pad_token, kIgnoreIndex);
    append_padded(labels, kIgnoreIndex, length, layout.side, out.labels);
    return;
  }
  const int32_t beside =
      layout.objective == Objective::kCompatAll ? layout.pad_token : kIgnoreIndex;
  const bool after_padding =
      size_of(tokens) < length && layout.side == PadSide::kLeft && rules.shifted_labels;
  append_padded(labels_of(tokens, example, layout, after_padding), beside, length, layout.side,
                out.labels);
}

int64_t label_tokens_of(const Example& example, int64_t length, const RowLayout& layout,
                        const models::InputRules& rules) {
  LabelledRows row;
  append_row(example, length, layout, rules, row);
  const auto first = row.labels.begin() + (rules.shifted_labels ? 1 : 0);
  return std::count_if(first, row.labels.end(),
                       [](int32_t label) { return label != kIgnoreIndex; });
}

}  // namespace fsdp::data
