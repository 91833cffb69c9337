// Contract: tools/data/text_stream.h.
#include "tools/data/text_stream.h"

#include "tools/data/tokenizer/utf8.h"

namespace fsdp::data {
namespace {

constexpr size_t kContext = 8;  // tokens that are kept before a new one

// Ends within a character: with its first bytes, or with what a tokenizer writes for them.
bool is_open(std::string_view text) {
  return text.ends_with("\ufffd") || incomplete_utf8_tail(text) > 0;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<int32_t> before)
    : tokenizer_(tokenizer),
      ids_(std::move(before)),
      written_(tokenizer.decode(ids_)),
      cut_(ids_.size()) {}

std::string TextStream::push(int32_t id) {
  ids_.push_back(id);
  const std::string text = tokenizer_.decode(ids_);
  return text.size() <= written_.size() || is_open(text) ? "" : take(text);
}

std::string TextStream::finish() { return take(tokenizer_.decode(ids_)); }

// The tokens are forgotten only up to where the text was whole: bytes of one character stay
// together.
std::string TextStream::take(const std::string& text) {
  std::string out = text.size() > written_.size() ? text.substr(written_.size()) : "";
  written_ = text;
  if (ids_.size() >= cut_ + kContext) {
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(cut_));
    cut_ = ids_.size();
    written_ = tokenizer_.decode(ids_);
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
