// What a Split or Replace looks for: a string or a regular expression.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/regex.h"

namespace fsdp::data {

class JsonNode;

class Pattern {
 public:
  // {"String": "..."} or {"Regex": "..."}
  explicit Pattern(const JsonNode& node);
  explicit Pattern(std::string_view regex) : regex_(Regex(regex)) {}

  // The matches from left to right; they do not overlap. A match may be empty, but not where the
  // one before it ends.
  template <typename Use>
  void for_each(std::string_view text, const Use& use) const {
    Span match;
    size_t last_end = text.npos;
    for (size_t from = 0; from <= text.size() && find(text, from, match);) {
      const bool empty = match.begin == match.end;
      from = match.end;
      if (empty) from += match.end < text.size() ? character_length(text[match.end]) : 1;
      if (!empty || match.end != last_end) use(match);
      last_end = match.end;
    }
  }

 private:
  bool find(std::string_view text, size_t from, Span& match) const;

  std::string literal_;  // when there is no regex_
  std::optional<Regex> regex_;
};

}  // namespace fsdp::data
