// PCRE2 with its just-in-time compiler. Contract: tools/data/tokenizer/regex.h.
//
// [Note: translation]
// Rewrites a pattern of Oniguruma (the engine of Hugging Face's tokenizers) for PCRE2 where the two
// read it differently or PCRE2's tables are older:
//   \s, \S                Unicode white space (PCRE2 adds U+180E)
//   \p{L}, \p{N}          and the letters and numbers that came with Unicode 15 and 16
//   [a[bc]d]              a class in a class is a union
//   ^, $                  at the beginning and end of every line
//   \v \uHHHH {,n}        one character; a character; {0,n}
// Refused, because it means something else there and nobody needed it yet: \w \b \h \X \R \K, back
// references, POSIX classes, && in classes, options for the rest of a group, possessive {n,m}+.
// Refused so that no file can exhaust the stack: more than 65536 bytes, classes more than 64 deep.
// One pass over the pattern: groups and quantifiers are copied, classes and escapes rewritten.
#include "tools/data/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <optional>

#include <pcre2.h>

#include "core/error.h"
#include "tools/data/tokenizer/characters.h"

namespace fsdp::data {
namespace {

constexpr char32_t kLastCharacter = 0x10ffff;
// Far above what tokenizers have, and far below what would exhaust the stack.
constexpr size_t kLongestPattern = 1 << 16;
constexpr int kDeepestClass = 64;

std::string quoted(char32_t character) {
  return fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(character));
}

std::string members(std::span<const CharacterRange> ranges) {
  std::string out;
  for (const CharacterRange& r : ranges) out += quoted(r.first) + "-" + quoted(r.last);
  return out;
}

std::string members_of_complement(std::span<const CharacterRange> ranges) {
  std::string out;
  char32_t next = 0;
  for (const CharacterRange& r : ranges) {
    if (r.first > next) out += quoted(next) + "-" + quoted(r.first - 1);
    next = r.last + 1;
  }
  return out + quoted(next) + "-" + quoted(kLastCharacter);
}

// Either one character or a set, written as members of a PCRE2 class.
struct Atom {
  std::optional<char32_t> character;
  std::string set;
  bool negated = false;  // the set stands for all others
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}
  std::string run();

 private:
  bool at_end() const { return i_ == pattern_.size(); }
  bool looking_at(std::string_view text) const { return pattern_.substr(i_).starts_with(text); }
  bool take(std::string_view text) {
    const bool there = looking_at(text);
    if (there) i_ += text.size();
    return there;
  }
  char32_t next_character() {
    if (at_end()) refuse("its end");
    const char32_t out = character_at(pattern_, i_);
    i_ += character_length(pattern_[i_]);
    return out;
  }
  [[noreturn]] void refuse(std::string_view what) const {
    fail("regular expression \"{}\": {} at byte {} is not supported", pattern_, what, i_);
  }
  std::string group();
  std::string quantifier();
  Atom escape();
  Atom property(bool negated);
  char32_t hexadecimal(size_t least, size_t most);
  std::string class_members();
  std::string class_item();

  std::string_view pattern_;
  size_t i_ = 0;
  int class_depth_ = 0;
};

std::string Translator::run() {
  std::string out;
  while (!at_end()) {
    const char c = pattern_[i_];
    if (c == '(') {
      out += group();
    } else if (c == '[') {
      ++i_;
      const char* const open = take("^") ? "[^" : "[";
      out += open + class_members() + "]";
    } else if (c == '{') {
      out += quantifier();
    } else if (c == '\\') {
      const Atom atom = escape();
      out += atom.character ? quoted(*atom.character)
                            : fmt::format("[{}{}]", atom.negated ? "^" : "", atom.set);
    } else if (c == '^' || c == '$') {
      ++i_;
      out += fmt::format("(?m:{})", c);
    } else {
      append_utf8(out, next_character());
    }
  }
  return out;
}

std::string Translator::group() {
  for (const std::string_view open : {"(?:", "(?i:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
    if (take(open)) return std::string(open);
  }
  if (looking_at("(?") || looking_at("(*")) refuse(pattern_.substr(i_, 3));
  ++i_;
  return "(?:";  // what a group holds is never asked for
}

std::string Translator::quantifier() {
  const size_t close = pattern_.find('}', i_);
  const std::string_view inside =
      close == pattern_.npos ? "" : pattern_.substr(i_ + 1, close - i_ - 1);
  const bool counts = inside.find_first_not_of("0123456789,") == inside.npos && inside.size() > 0;
  if (!counts) refuse("{");
  i_ = close + 1;
  if (looking_at("+")) refuse("a + after {}");
  return fmt::format("{{{}{}}}", inside.starts_with(",") ? "0" : "", inside);
}

char32_t Translator::hexadecimal(size_t least, size_t most) {
  char32_t out = 0;
  size_t digits = 0;
  for (; digits < most && !at_end() && std::isxdigit(static_cast<uint8_t>(pattern_[i_]));
       ++digits) {
    const char c = pattern_[i_++];
    out = out * 16 + static_cast<char32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  if (digits < least || out > kLastCharacter) refuse("a number of a character");
  return out;
}

Atom Translator::property(bool negated) {
  const size_t close = pattern_.find('}', i_);
  if (!take("{") || close == pattern_.npos) refuse("\\p without {name}");
  negated ^= take("^");
  const std::string name(pattern_.substr(i_, close - i_));
  i_ = close + 1;
  // Latin first: a class tests its characters below 256 with a bitmap.
  if (name == "L") {
    return {{}, "A-Za-z\\p{L}" + members(recent_letters()), negated};
  }
  if (name == "N") return {{}, "0-9\\p{N}" + members(recent_numbers()), negated};
  return {{}, fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', name), false};
}

Atom Translator::escape() {
  ++i_;
  const char32_t c = next_character();
  switch (c) {
    case 's':
      return {{}, members(white_space()), false};
    case 'S':
      return {{}, members_of_complement(white_space()), false};
    case 'd':
      return {{}, "\\p{Nd}", false};
    case 'D':
      return {{}, "\\P{Nd}", false};
    case 'p':
      return property(false);
    case 'P':
      return property(true);
    case 'n':
      return {U'\n', "", false};
    case 'r':
      return {U'\r', "", false};
    case 't':
      return {U'\t', "", false};
    case 'f':
      return {U'\f', "", false};
    case 'v':
      return {U'\v', "", false};
    case 'u':
      return {hexadecimal(4, 4), "", false};
    case 'x': {
      const bool braces = take("{");
      const char32_t character = hexadecimal(1, braces ? 8 : 2);
      if (braces && !take("}")) refuse("\\x{ without }");
      return {character, "", false};
    }
    default:
      if (c < 0x80 && std::isalnum(static_cast<int>(c))) {
        refuse(fmt::format("\\{}", static_cast<char>(c)));
      }
      return {c, "", false};
  }
}

// After the opening bracket; takes the closing one.
std::string Translator::class_members() {
  if (++class_depth_ > kDeepestClass) refuse(fmt::format("a class {} deep", class_depth_));
  std::string out;
  for (bool first = true; first || !take("]"); first = false) {
    if (at_end()) refuse("[ without ]");
    if (first && looking_at("]")) refuse("an empty class");
    out += class_item();
  }
  --class_depth_;
  return out;
}

std::string Translator::class_item() {
  if (looking_at("[:")) refuse("a POSIX class");
  if (looking_at("&&")) refuse("&&");
  if (looking_at("[^")) refuse("[^ in a class");
  if (take("[")) return class_members();
  const auto item = [&] { return looking_at("\\") ? escape() : Atom{next_character(), "", false}; };
  const Atom low = item();
  if (low.negated) refuse("\\P in a class");
  if (!low.character) return low.set;
  const bool range = looking_at("-") && !looking_at("-]") && !looking_at("-[");
  if (!range) return quoted(*low.character);
  ++i_;
  const Atom high = item();
  if (!high.character || *high.character < *low.character) refuse("a range");
  return quoted(*low.character) + "-" + quoted(*high.character);
}

}  // namespace

std::string translate_regex(std::string_view oniguruma_pattern) {
  FSDP_CHECK(oniguruma_pattern.size() <= kLongestPattern,
             "regular expression: expected at most {} bytes, got {}", kLongestPattern,
             oniguruma_pattern.size());
  return Translator(oniguruma_pattern).run();
}

// ---------------------------------------------------------------------------- PCRE2

namespace {

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct Regex::Compiled {
  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;

  ~Compiled() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }
};

Regex::Regex(std::string_view oniguruma_pattern) : compiled_(std::make_unique<Compiled>()) {
  const std::string pattern = translate_regex(oniguruma_pattern);
  int error = 0;
  PCRE2_SIZE where = 0;
  pcre2_compile_context* options = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(options, PCRE2_NEWLINE_LF);
  compiled_->code =
      pcre2_compile(units(pattern), pattern.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                    &error, &where, options);
  pcre2_compile_context_free(options);
  FSDP_CHECK(compiled_->code, "regular expression \"{}\": {}", oniguruma_pattern,
             message_of(error));
  // Where there is no just-in-time compiler, pcre2_match interprets.
  if (pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE) == 0) {
    compiled_->context = pcre2_match_context_create(nullptr);
    compiled_->stack = pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr);
    pcre2_jit_stack_assign(compiled_->context, nullptr, compiled_->stack);
  }
  compiled_->match = pcre2_match_data_create(1, nullptr);  // no groups: only the whole match
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::find(std::string_view text, size_t from, Span& match) const {
  const Compiled& c = *compiled_;
  const int result =
      pcre2_match(c.code, units(text), text.size(), from, PCRE2_NO_UTF_CHECK, c.match, c.context);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  FSDP_CHECK(result >= 0, "regular expression: at byte {} of a text: {}", from, message_of(result));
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(c.match);
  match = {ends[0], ends[1]};
  return true;
}

}  // namespace fsdp::data
