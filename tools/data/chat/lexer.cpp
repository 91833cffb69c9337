// Texts and tags as tokens. Contract: tools/data/chat/syntax.h.
#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "tools/data/chat/python_text.h"
#include "tools/data/chat/syntax.h"
#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/utf8.h"

namespace fsdp::data::jinja {
namespace {

constexpr size_t kMostSource = 1u << 20;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_latin_letter(c) || is_digit(c) || c == '_'; }

class Lexer {
 public:
  explicit Lexer(const Source& source) : source_(source), text_(source.text()) {}

  Token next() {
    if (!tag_end_.empty()) return tag_token();
    for (;;) {
      Token token = text_token();
      if (!token.text.empty()) return token;
      token.kind = Token::Kind::kEnd;
      if (at_ == text_.size()) return token;
      token.kind = Token::Kind::kSymbol;
      token.text = text_.substr(at_, 2);
      if (peek(2) == '+') fail_here(fmt::format("{}+ is not known", token.text));
      at_ += peek(2) == '-' ? 3 : 2;
      tag_end_ = token.text == "{%" ? "%}" : "}}";
      if (token.text != "{#") return token;
      skip_comment();
    }
  }

 private:
  // The text up to the next tag, which decides how much of the text's end is dropped.
  Token text_token() {
    Token token = token_here(Token::Kind::kText);
    const auto tag = [&] { return peek() == '{' && kTags.find(peek(1)) != kTags.npos; };
    while (at_ < text_.size() && !tag()) ++at_;
    std::string_view text = text_.substr(token.place, at_ - token.place);
    if (peek(2) == '-') {
      text = strip(text, Side::kRight);
    } else if (at_ < text_.size() && peek(1) != '{') {
      const size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
      const bool blank = strip(text.substr(line)).empty();
      if (blank && (line > 0 || at_line_start_)) text = text.substr(0, line);
    }
    token.text = text;
    return token;
  }

  void skip_comment() {
    const size_t end = text_.find("#}", at_);
    if (end == text_.npos) fail_here("a comment {# without its #}");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    at_ = end;
    if (sign == '+') fail_here("+#} is not known");
    at_ += 2;
    leave_tag(sign == '-', true);
  }

  // `strips`: white space behind the tag is dropped; else, where `trims`, one line end.
  void leave_tag(bool strips, bool trims) {
    if (strips) {
      skip_space();
    } else if (trims && peek() == '\n') {
      ++at_;
    }
    at_line_start_ = text_[at_ - 1] == '\n';
    tag_end_ = {};
  }

  void skip_space() {
    while (at_ < text_.size() && is_python_space(character_at(text_, at_))) {
      at_ += character_length(text_[at_]);
    }
  }

  Token tag_token() {
    skip_space();
    const bool block = tag_end_ == "%}";
    if (at_ == text_.size())
      fail_here(block ? "a tag {% without its %}" : "an output {{ without its }}");
    Token token = token_here(Token::Kind::kSymbol);
    const bool strips = peek() == '-' && text_.substr(at_ + 1).starts_with(tag_end_);
    if (brackets_.empty() && (strips || text_.substr(at_).starts_with(tag_end_))) {
      token.text = tag_end_;
      at_ += strips ? 3 : 2;
      leave_tag(strips, block);
    } else if (is_digit(peek())) {
      read_number(token);
    } else if (peek() == '\'' || peek() == '"') {
      read_string(token);
    } else if (is_name_part(peek())) {
      token.kind = Token::Kind::kName;
      append_while(token.text, is_name_part);
    } else {
      read_symbol(token);
    }
    return token;
  }

  void read_number(Token& out) {
    out.kind = Token::Kind::kWhole;
    append_while(out.text, is_digit);
    const bool zeros = out.text.size() > 1 && out.text[0] == '0';
    if (peek() == '.' && is_digit(peek(1))) {
      out.kind = Token::Kind::kFloat;
      out.text += text_[at_++];
      append_while(out.text, is_digit);
    }
    const size_t exponent = peek(1) == '+' || peek(1) == '-' ? 2 : 1;
    if ((peek() == 'e' || peek() == 'E') && is_digit(peek(exponent))) {
      out.kind = Token::Kind::kFloat;
      out.text += text_.substr(at_, exponent);
      at_ += exponent;
      append_while(out.text, is_digit);
    }
    const size_t known = out.text.size();
    append_while(out.text, is_name_part);
    if (zeros || out.text.size() > known) {
      source_.fail_at(out.place, fmt::format("the number {} is not known", out.text));
    }
  }

  void read_symbol(Token& out) {
    constexpr std::string_view kTwo[] = {"==", "!=", "<=", ">=", "**", "//"};
    constexpr std::string_view kOne = "+-*/%~[](){}<>=.:|,", kOpen = "([{", kClose = ")]}";
    const bool two =
        std::find(std::begin(kTwo), std::end(kTwo), text_.substr(at_, 2)) != std::end(kTwo);
    out.text = text_.substr(at_, two ? 2 : 1);
    const char first = out.text[0];
    if (!two && kOne.find(first) == kOne.npos) {
      fail_here(fmt::format("{} is not known", text_.substr(at_, character_length(first))));
    }
    if (kOpen.find(first) != kOpen.npos) brackets_ += first;
    const size_t close = kClose.find(first);
    if (close != kClose.npos) {
      if (brackets_.empty() || brackets_.back() != kOpen[close]) {
        fail_here(fmt::format("a {} that closes nothing", first));
      }
      brackets_.pop_back();
    }
    at_ += out.text.size();
  }

  void read_string(Token& out) {
    out.kind = Token::Kind::kString;
    const char quote = text_[at_++];
    while (peek() != quote || at_ == text_.size()) {
      if (at_ == text_.size()) source_.fail_at(out.place, "a text without its end");
      if (peek() == '\\') {
        append_escape(out.text);
      } else {
        out.text += text_[at_++];
      }
    }
    ++at_;
  }

  // Python's escapes; others stay as they are.
  void append_escape(std::string& out) {
    constexpr std::string_view kNames = "abfnrtv\\'\"\n", kMeanings = "\a\b\f\n\r\t\v\\'\"";
    const char kind = peek(1);
    const size_t known = kNames.find(kind);
    if (at_ + 1 < text_.size() && known != kNames.npos) {
      if (kind != '\n') out += kMeanings[known];
      at_ += 2;
      return;
    }
    if (kind == 'N' || (kind & 0x80)) {
      const auto name = text_.substr(at_ + 1, character_length(kind));
      fail_here(fmt::format("\\{} is not known", name));
    }
    const bool octal = kind >= '0' && kind <= '7';
    const size_t length = octal ? 3 : kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (length == 0) return void(out += text_[at_++]);
    const std::string_view digits = text_.substr(at_ + (octal ? 1 : 2), length);
    uint32_t character = 0;
    const char* const end =
        std::from_chars(digits.data(), digits.data() + digits.size(), character, octal ? 8 : 16)
            .ptr;
    const bool whole = octal || end == digits.data() + length;
    if (!whole || character > 0x10ffff || (character >= 0xd800 && character < 0xe000)) {
      fail_here(fmt::format("\\{} without the {} digits of a character", kind, length));
    }
    at_ = static_cast<size_t>(end - text_.data());
    append_utf8(out, character);
  }

  template <typename Belongs>
  void append_while(std::string& out, const Belongs& belongs) {
    while (belongs(peek())) out += text_[at_++];
  }
  Token token_here(Token::Kind kind) const { return {kind, static_cast<Place>(at_), {}}; }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  [[noreturn]] void fail_here(std::string_view message) const {
    source_.fail_at(static_cast<Place>(at_), message);
  }

  static constexpr std::string_view kTags = "{%#";  // behind a {

  const Source& source_;
  std::string_view text_;
  size_t at_ = 0;
  std::string_view tag_end_;   // of the tag around this place; "" in text
  std::string brackets_;       // that are open: a tag does not end within them
  bool at_line_start_ = true;  // the text that comes next begins a line
};

}  // namespace

Source::Source(std::string_view text, std::string name) : name_(std::move(name)) {
  FSDP_CHECK(text.size() <= kMostSource, "{}: a chat template of {} bytes; at most {} are read",
             name_, text.size(), kMostSource);
  const size_t bad = first_invalid_utf8(text);
  FSDP_CHECK(bad == text.size(), "{}: not UTF-8 at byte {}", name_, bad);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      text_ += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      text_ += '\n';
    }
  }
  if (text_.ends_with('\n')) text_.pop_back();
}

void Source::fail_at(Place place, std::string_view message) const {
  const std::string_view before = std::string_view(text_).substr(0, place);
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  fail("{}:{}:{}: {}", name_, 1 + std::count(before.begin(), before.end(), '\n'),
       1 + count_characters(before.substr(line_begin)), message);
}

std::function<Token()> tokens_of(const Source& source) {
  return [lexer = Lexer(source)]() mutable { return lexer.next(); };
}

}  // namespace fsdp::data::jinja
