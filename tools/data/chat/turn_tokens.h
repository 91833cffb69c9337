// Which tokens of a conversation belong to which turn, and where an assistant's turn begins and
// ends. Not here: the text (chat_text.h), which turns a run trains (row_layout.h).
//
// [Note: the tokens of a turn]
// - A generation block: the tokens that cover one of its bytes.
// - Another assistant's turn begins behind the longest common prefix, in tokens, of the
//   conversation with one of the turn's starts, but not before the first token that begins in the
//   turn's bytes. It ends with the last token that begins in these bytes; the next token is the
//   turn's, too, where it is an end token of the model and the turn has none.
// - Of other roles: the tokens that begin in its bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/data/chat/chat_text.h"
#include "tools/data/tokenizer/tokenizer.h"

namespace fsdp::data {

// As it stands in files of tokens.
struct RowTurn {
  enum Flag : uint16_t {
    kOff = 1,      // is not trained, whatever a run trains
    kNoEnd = 2,    // an assistant's without an end token of the model
    kLeftOut = 4,  // the template does not write all that the message says
    kSpecial = 8,  // the message has the text of a special token
    kPrompt = 16,  // is trained with train_on: all alone
  };
  uint32_t first = 0, count = 0;  // tokens, of the row
  uint32_t message = 0;           // several turns may be of one message
  uint16_t role = 0, flags = 0;
  bool has(Flag flag) const { return (flags & flag) != 0; }
  // A turn of the assistant that a run trains.
  bool is_answer() const {
    return role == static_cast<uint16_t>(Role::kAssistant) && !has(kOff) && !has(kPrompt);
  }
  bool operator==(const RowTurn&) const = default;
};
static_assert(sizeof(RowTurn) == 16);

struct ChatTokens {
  std::vector<int32_t> ids;  // without begin and end tokens of the tokenizer's own
  std::vector<RowTurn> turns;
};

// `end_tokens`: ids that end a turn of the model.
ChatTokens chat_tokens(const ChatText& chat, const Tokenizer& tokenizer,
                       std::span<const int32_t> end_tokens);

}  // namespace fsdp::data
