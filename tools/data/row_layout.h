// A row of a batch from the tokens of a row of the data: cut, padded, with its labels. Not here:
// which rows (sampler.h), how long the rows of a batch are (loader.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tools/data/chat/turn_tokens.h"
#include "tools/data/objective.h"
#include "tools/engine/batch.h"

namespace fsdp::data {

struct RowLayout {
  Objective objective = Objective::kLm;
  PadSide side = PadSide::kRight;
  int32_t pad_token = 0;
  TrainOn train_on = TrainOn::kAssistant;   // of conversations, with kSft
  std::optional<Role> role = std::nullopt;  // to look at: the turns of this role instead

  // Whether padding must be hidden from attention. To the right of a row only padding sees it.
  bool hides_padding() const { return side == PadSide::kLeft || is_compat(objective); }
};

// A row of the data, as row_encoder.h made it.
struct Example {
  std::span<const int32_t> tokens;
  int64_t kept = 0, answer = 0;
  std::span<const RowTurn> turns = {};  // of a conversation
};

// Tokens of a conversation that are trained, cut to `length`, with kSft and kLm.
int64_t trained_tokens(const Example& example, int64_t length, const RowLayout& layout);
// Its tokens where no more than `most` fit, without padding.
int64_t tokens_of(const Example& example, int64_t most, Objective objective);
// Appends tokens, labels and mask of a row of `length`, cut or padded to it. Where a position
// predicts the next label (`rules`), the first token of a row that is padded to the left has only
// padding before it, which has seen nothing: it is not trained, so that the side of the padding
// decides nothing. Not of a guide's labels (is_compat).
void append_row(const Example& example, int64_t length, const RowLayout& layout,
                const models::InputRules& rules, LabelledRows& out);
// Labels that count of a row of `length`.
int64_t label_tokens_of(const Example& example, int64_t length, const RowLayout& layout,
                        const models::InputRules& rules);

}  // namespace fsdp::data
