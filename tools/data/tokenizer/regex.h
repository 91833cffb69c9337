// Regular expressions of tokenizer.json files: written for Oniguruma, run by PCRE2.
// What is rewritten and what is refused: regex.cpp ([Note: translation]). Not here: what is done
// with matches (pre_tokenizer.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tools/data/tokenizer/span.h"

namespace fsdp::data {

// One thread at a time: a search writes its match into memory of the object.
class Regex {
 public:
  // Error without a place for a pattern that cannot be run with the meaning that it had.
  explicit Regex(std::string_view oniguruma_pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // The first match that begins at `from` or later in valid UTF-8.
  bool find(std::string_view text, size_t from, Span& match) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

// The pattern for PCRE2. Error that quotes the pattern and names what is not supported.
std::string translate_regex(std::string_view oniguruma_pattern);

}  // namespace fsdp::data
