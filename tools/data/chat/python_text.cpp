// Case by utf8proc's simple mappings; mappings to several characters follow from its full case
// folding, as SpecialCasing.txt of Unicode has them. Contract: tools/data/chat/python_text.h.
#include "tools/data/chat/python_text.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <utf8proc.h>

#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/unicode_form.h"

namespace fsdp::data::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

char32_t to_upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

// The characters that full case folding makes of one; itself where it makes a single one.
std::u32string folded_to_several(char32_t c) {
  if (c < 0x80) return {c};
  std::array<utf8proc_int32_t, 4> out{};
  int last_class = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), out.data(),
                                             out.size(), UTF8PROC_CASEFOLD, &last_class);
  if (count < 2 || category(c) == UTF8PROC_CATEGORY_LU) return {c};
  return {out.begin(), out.begin() + count};
}

void append_title(std::string& out, char32_t c) {
  constexpr char32_t kIota = 0x3b9, kIotaBelow = 0x345, kApostrophe = 0x2bc;
  const auto simple = static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
  const bool sharp_s = c == 0xdf;  // newer tables have a capital for it
  const bool one = (simple != c && !sharp_s) || category(c) == UTF8PROC_CATEGORY_LT;
  const std::u32string several = folded_to_several(c);
  if (one || several.size() == 1) return append_utf8(out, simple);
  bool first = true;
  for (const char32_t part : several) {
    const char32_t kept = part == kIota ? kIotaBelow : part;
    append_utf8(out, first ? to_upper(part) : kept);
    first = part == kApostrophe;
  }
}

// Bytes of the characters at the beginning that belong.
template <typename Belongs>
size_t run_of(std::string_view text, const Belongs& belongs) {
  size_t end = 0;
  while (end < text.size() && belongs(character_at(text, end))) end += character_length(text[end]);
  return end;
}

bool is_cased(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT || to_upper(c) != c ||
         static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))) != c;
}

bool is_line_end(char32_t c) {
  return (c >= 0xa && c <= 0xd) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_printable(char32_t c) {  // utf8proc's order: unassigned, letters to symbols, the others
  const auto kind = category(c);
  return c == ' ' || (kind > UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS);
}

// Changes each run of characters that lie in words.
template <typename InWord, typename Change>
std::string change_words(std::string_view text, const InWord& in_word, const Change& change) {
  std::string out;
  while (!text.empty()) {
    const size_t between = run_of(text, [&](char32_t c) { return !in_word(c); });
    out += text.substr(0, between);
    text.remove_prefix(between);
    const size_t word = run_of(text, in_word);
    if (word > 0) out += change(text.substr(0, word));
    text.remove_prefix(word);
  }
  return out;
}

}  // namespace

bool is_python_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x9 && c <= 0xd) || (c >= 0x1c && c <= 0x1f);
  return is_white_space(c);
}

size_t byte_of(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += character_length(text[at]);
  return at;
}

std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> characters) {
  const auto removed = [&](size_t begin) {
    const std::string_view one = text.substr(begin, character_length(text[begin]));
    return characters ? characters->find(one) != one.npos
                      : is_python_space(character_at(text, begin));
  };
  while (side != Side::kRight && !text.empty() && removed(0)) {
    text.remove_prefix(character_length(text[0]));
  }
  while (side != Side::kLeft && !text.empty()) {
    const size_t last = previous_character(text, text.size());
    if (!removed(last)) break;
    text = text.substr(0, last);
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t most) {
  std::vector<std::string_view> out;
  if (!separator) {
    for (text = strip(text, Side::kLeft); !text.empty(); text = strip(text, Side::kLeft)) {
      if (most-- == 0) return out.push_back(text), out;
      const size_t end = run_of(text, [](char32_t c) { return !is_python_space(c); });
      out.push_back(text.substr(0, end));
      text.remove_prefix(end);
    }
    return out;
  }
  for (;;) {
    const size_t at = most-- == 0 ? text.npos : text.find(*separator);
    out.push_back(text.substr(0, at));
    if (at == text.npos) return out;
    text.remove_prefix(at + separator->size());
  }
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = run_of(text, [](char32_t c) { return !is_line_end(c); });
    out.push_back(text.substr(0, end));
    text.remove_prefix(end);
    const bool two = text.starts_with("\r\n");
    if (!text.empty()) text.remove_prefix(two ? 2 : character_length(text[0]));
  }
  return out;
}

std::string replace(std::string_view text, std::string_view old, std::string_view replacement,
                    int64_t most, size_t most_bytes) {
  std::string out;
  while (most-- != 0 && out.size() <= most_bytes) {
    const size_t at = text.find(old);
    if (at == text.npos) break;
    out.append(text.substr(0, at)).append(replacement);
    text.remove_prefix(at + old.size());
    if (!old.empty()) continue;
    if (text.empty()) break;
    const size_t length = character_length(text[0]);
    out.append(text.substr(0, length));
    text.remove_prefix(length);
  }
  return out.append(text);
}

std::string upper(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i += character_length(text[i])) {
    for (const char32_t part : folded_to_several(character_at(text, i))) {
      append_utf8(out, to_upper(part));
    }
  }
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  to_lower_case_with_final_sigma(text, out);
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  std::string out;
  append_title(out, character_at(text, 0));
  // The first character is lowered with the rest: it decides whether a sigma is final.
  const std::string all = lower(text);
  const std::string first = lower(text.substr(0, character_length(text[0])));
  return out.append(all, std::min(all.size(), first.size()));
}

std::string title(std::string_view text) { return change_words(text, is_cased, capitalize); }

std::string title_words(std::string_view text) {
  const auto in_word = [](char32_t c) {
    return !is_python_space(c) && c != '-' && c != '(' && c != '{' && c != '[' && c != '<';
  };
  return change_words(text, in_word, [](std::string_view word) {
    const size_t first = character_length(word[0]);
    return upper(word.substr(0, first)) + lower(word.substr(first));
  });
}

void append_repr(std::string& out, std::string_view text) {
  const bool twice = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = twice ? '"' : '\'';
  out += quote;
  for (size_t i = 0; i < text.size(); i += character_length(text[i])) {
    const char32_t c = character_at(text, i);
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      (out += '\\') += text[i];
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out += text.substr(i, character_length(text[i]));
    } else {
      const auto number = static_cast<uint32_t>(c);
      out += number < 0x100     ? fmt::format("\\x{:02x}", number)
             : number < 0x10000 ? fmt::format("\\u{:04x}", number)
                                : fmt::format("\\U{:08x}", number);
    }
  }
  out += quote;
}

void append_repr(std::string& out, double number) {
  const std::string text = fmt::format("{}", number);  // switches to exponents where Python does
  out += text;
  if (text.find_first_not_of("-0123456789") == text.npos) out += ".0";
}

std::string escape_html(std::string_view text) {
  constexpr std::string_view kSpecial = "&<>'\"",
                             kEscaped[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  std::string out;
  for (const char c : text) {
    const size_t at = kSpecial.find(c);
    out += at == kSpecial.npos ? std::string_view(&c, 1) : kEscaped[at];
  }
  return out;
}

}  // namespace fsdp::data::jinja
