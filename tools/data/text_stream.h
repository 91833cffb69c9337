// Turns tokens that come one by one into text. A token may end inside a character; the text comes
// in whole characters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/data/tokenizer/tokenizer.h"

namespace fsdp::data {

class TextStream {
 public:
  // `before`: the tokens before the new ones. The text of a token may depend on its predecessors.
  // The tokenizer outlives the stream. `special`: whether tokens that are no text are written.
  TextStream(const Tokenizer& tokenizer, std::vector<int32_t> before,
             SpecialTokens special = SpecialTokens::kOmit);

  // What the token adds to the text; "" until a character is complete.
  std::string push(int32_t id);
  // The rest at the end: an incomplete character, as the tokenizer writes broken characters.
  std::string finish();

 private:
  std::string take(const std::string& text);

  std::string text() const { return tokenizer_.decode(ids_, special_); }  // of ids_

  const Tokenizer& tokenizer_;
  SpecialTokens special_;
  std::vector<int32_t> ids_;  // the last tokens: enough to know the text of the next one
  std::string written_;       // the text of ids_
  size_t cut_;                // how many of ids_ may be forgotten once enough tokens follow them
};

// What `ids` add to the text of `before`.
std::string text_after(const Tokenizer& tokenizer, const std::vector<int32_t>& before,
                       const std::vector<int32_t>& ids);

}  // namespace fsdp::data
