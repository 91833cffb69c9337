// The text of tokens that come one by one, in whole characters: a token may end within one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/data/tokenizer/tokenizer.h"

namespace fsdp::data {

class TextStream {
 public:
  // `before`: the tokens that the new ones follow; how a token is written may depend on them.
  // The tokenizer outlives the stream.
  TextStream(const Tokenizer& tokenizer, std::vector<int32_t> before);

  // What the token adds to the text; "" while it is not known to be whole.
  std::string push(int32_t id);
  // What was held back, as the tokenizer writes broken characters.
  std::string finish();

 private:
  std::string take(const std::string& text);

  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;  // the last ones: enough to know how the next is written
  std::string written_;       // of them
  size_t cut_;                // how many of them may be forgotten once enough have come after them
};

// What `ids` add to the text of `before`.
std::string text_after(const Tokenizer& tokenizer, const std::vector<int32_t>& before,
                       const std::vector<int32_t>& ids);

}  // namespace fsdp::data
