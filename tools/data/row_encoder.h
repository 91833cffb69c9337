// A row as token ids, and where in these its parts are. Not here: what is cut of a row that is too
// long, labels, padding (row_layout.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/data/chat/turn_tokens.h"
#include "tools/data/document.h"
#include "tools/data/objective.h"
#include "tools/data/tokenizer/tokenizer.h"

namespace fsdp::data {

// Of the tokens of one row. As it stands in files of tokens.
struct ExampleSpan {
  uint64_t end = 0;     // in the tokens of all rows: where this row's tokens end
  uint32_t kept = 0;    // so many at its end are not cut before all others are
  uint32_t answer = 0;  // so many at its end are the answer, with the end-of-text; of kTurns: so
                        // many turns the row has
  bool operator==(const ExampleSpan&) const = default;
};
static_assert(sizeof(ExampleSpan) == 16);

class RowEncoder {
 public:
  // `separator`: end-of-text after a row, unless the tokenizer ends every text with it. Error when
  // the tokenizer has none. Of kPair: no separator, as in the script that it repeats.
  // `end_tokens`: ids that end a turn, of kTurns.
  RowEncoder(const Tokenizer& tokenizer, RowForm form, bool separator,
             std::vector<int32_t> end_tokens = {});

  using UseIds = Tokenizer::UseIds;
  // Hands on the ids of a row; its span, with `end` the number of its ids.
  ExampleSpan encode(const Document& row, const UseIds& use) const;
  // The same of a conversation, whose turns are appended to `turns`.
  ExampleSpan encode_turns(const ChatText& chat, const UseIds& use,
                           std::vector<RowTurn>& turns) const;

  // Of a text whose tokens begin these ids, for people: that it writes "<s>" or "</s>" itself where
  // the tokenizer, or the separator, puts one too; "": it does not, at least at half of the places.
  std::string note_on_doubled(std::span<const int32_t> ids) const;

 private:
  ExampleSpan encode_whole(const Document& row, const UseIds& use) const;
  ExampleSpan encode_answered(const Document& row, const UseIds& use) const;
  ExampleSpan encode_pair(const Document& row, const UseIds& use) const;
  void add_frame(ChatTokens& tokens) const;

  const Tokenizer& tokenizer_;
  RowForm form_;
  std::vector<int32_t> before_, after_;  // what the tokenizer puts around a text
  std::vector<int32_t> separator_;       // end-of-text, or nothing
  std::vector<int32_t> end_tokens_;
};

}  // namespace fsdp::data
