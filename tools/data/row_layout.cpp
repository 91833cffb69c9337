// Contract: tools/data/row_layout.h.
#include "tools/data/row_layout.h"

#include <algorithm>
#include <utility>
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

// Calls `use` with the tokens [first, end) of each turn that `is_chosen`, within a row of `length`.
template <typename IsChosen, typename Use>
void for_each_turn(const Example& example, int64_t length, const IsChosen& is_chosen,
                   const Use& use) {
  for (const RowTurn& turn : example.turns) {
    const auto end = std::min<int64_t>(int64_t{turn.first} + turn.count, length);
    if (turn.first < end && is_chosen(turn)) use(int64_t{turn.first}, end);
  }
}

// The same of the turns that are labels with kSft.
template <typename Use>
void for_each_answer(const Example& example, int64_t length, const RowLayout& layout,
                     const Use& use) {
  std::optional<uint32_t> last;  // message; it may be switched off
  for (const RowTurn& turn : example.turns) {
    if (turn.role == static_cast<uint16_t>(Role::kAssistant)) last = turn.message;
  }
  const auto is_chosen = [&](const RowTurn& turn) {
    if (layout.role) return turn.role == static_cast<uint16_t>(*layout.role);
    return turn.is_answer() && (layout.train_on != TrainOn::kLast || turn.message == last);
  };
  for_each_turn(example, length, is_chosen, use);
}

// The same of the turns that are switched off.
template <typename Use>
void for_each_off(const Example& example, int64_t length, const Use& use) {
  for_each_turn(
      example, length, [](const RowTurn& turn) { return turn.has(RowTurn::kOff); }, use);
}

// `tokens` as labels where a turn is trained.
void keep_answers(const Example& example, const RowLayout& layout, Ids& labels) {
  const Ids tokens = std::exchange(labels, Ids(labels.size(), kIgnoreIndex));
  for_each_answer(example, size_of(tokens), layout, [&](int64_t first, int64_t end) {
    std::copy(tokens.begin() + first, tokens.begin() + end, labels.begin() + first);
  });
}

// Of a row whose labels are its own tokens; without its padding.
Ids labels_of(const Ids& tokens, const Example& example, const RowLayout& layout,
              bool after_padding) {
  Ids labels = tokens;
  const int64_t length = size_of(tokens);
  if (layout.objective == Objective::kSft && !example.turns.empty()) {
    keep_answers(example, layout, labels);
  } else if (layout.objective == Objective::kSft) {
    // Where only the answer is left its end is cut.
    const int64_t lost = std::max<int64_t>(example.kept - length, 0);
    const int64_t trained = std::max<int64_t>(example.answer - lost, 0);
    std::fill(labels.begin(), labels.end() - std::min(trained, length), kIgnoreIndex);
  }
  if (layout.objective == Objective::kLm) {
    for_each_off(example, length, [&](int64_t first, int64_t end) {
      std::fill(labels.begin() + first, labels.begin() + end, kIgnoreIndex);
    });
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

int64_t trained_tokens(const Example& example, int64_t length, const RowLayout& layout) {
  int64_t answers = 0, off = 0;
  const auto add_to = [](int64_t& sum) {
    return [&sum](int64_t first, int64_t end) { sum += end - first; };
  };
  for_each_answer(example, length, layout, add_to(answers));
  for_each_off(example, length, add_to(off));
  return layout.objective == Objective::kLm ? length - off : answers;
}

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
