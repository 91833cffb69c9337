// Contract: tools/data/text_stream.h.
#include "tools/data/text_stream.h"

#include <algorithm>

#include "tools/data/tokenizer/utf8.h"

namespace fsdp::data {
namespace {

constexpr size_t kContext = 8;  // tokens that are kept before a new one

// Ends within a character, with its first bytes or what a tokenizer writes for them, or may change.
bool is_open(const Tokenizer& tokenizer, std::string_view text) {
  return text.ends_with("\ufffd") || incomplete_utf8_tail(text) > 0 ||
         tokenizer.may_change_end(text);
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<int32_t> before,
                       SpecialTokens special)
    : tokenizer_(tokenizer),
      special_(special),
      ids_(std::move(before)),
      written_(text()),
      cut_(ids_.size()) {}

std::string TextStream::push(int32_t id) {
  ids_.push_back(id);
  const std::string now = text();
  return now.size() <= written_.size() || is_open(tokenizer_, now) ? "" : take(now);
}

std::string TextStream::finish() { return take(text()); }

// Tokens are forgotten only up to where the text was whole: a character's bytes stay together.
std::string TextStream::take(const std::string& text) {
  const auto differ = std::mismatch(text.begin(), text.end(), written_.begin(), written_.end());
  const size_t from = tokenizer_.may_change_end(written_)  // an end that is out of reach
                          ? static_cast<size_t>(differ.first - text.begin())
                          : written_.size();
  std::string out = text.size() > from ? text.substr(from) : "";
  written_ = text;
  if (ids_.size() >= cut_ + kContext) {
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(cut_));
    cut_ = ids_.size();
    written_ = this->text();
  }
  return out;
}

std::string text_after(const Tokenizer& tokenizer, const std::vector<int32_t>& before,
                       const std::vector<int32_t>& ids) {
  TextStream stream(tokenizer, before);
  std::string out;
  for (const int32_t id : ids) out += stream.push(id);
  return out + stream.finish();
}

}  // namespace fsdp::data
