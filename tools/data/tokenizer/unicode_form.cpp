// By utf8proc, but for the characters where it is newer or older than the tokenizers library
// 0.22.2. Contract: tools/data/tokenizer/unicode_form.h.
//
// [Note: which Unicode]
// The library's normal forms come from the crate unicode-normalization-alignments 0.1.12, whose
// tables are those of Unicode 9; its lower case is that of Rust 1.92, Unicode 17. kUnknown holds
// what Unicode 10 to 18 added to the normal forms. kRecentCapitals holds what Unicode 15 to 17
// added to the lower case. Both were found by asking the library about every code point
// (tests/differential/unicode_tables.py); tests/fixtures/tokenizers/normalizers.json repeats them.
#include "tools/data/tokenizer/unicode_form.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>

#include <utf8proc.h>

#include "core/error.h"
#include "tools/data/tokenizer/characters.h"

namespace fsdp::data {
namespace {

// What came after Unicode 9 and is decomposed, composed or ordered since. To the library these are
// characters that nothing happens to. A range may hold older ones to which nothing happens either.
constexpr CharacterRange kUnknown[] = {
    {0x558, 0x558},     {0x58b, 0x58c},     {0x5c8, 0x5c9},     {0x7fd, 0x7fd},
    {0x897, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},     {0xd3b, 0xd3c},
    {0xeba, 0xeba},     {0x11a7, 0x11a7},  // see below
    {0x1715, 0x1715},   {0x1abf, 0x1af0},   {0x1df6, 0x1dfa},   {0x209d, 0x209f},
    {0x32ff, 0x32ff},   {0xa7f1, 0xa7f4},   {0xa82c, 0xa82c},   {0xab69, 0xab69},
    {0x105c9, 0x107bf}, {0x10d24, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b},
    {0x11382, 0x113d0}, {0x1145e, 0x1145e}, {0x11839, 0x11a99}, {0x11d42, 0x1612f},
    {0x16d63, 0x1b126}, {0x1ccd6, 0x1d128}, {0x1d250, 0x1d281}, {0x1d6a6, 0x1d6a6},
    {0x1df95, 0x1dfff}, {0x1e030, 0x1e6f5}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9}};
// U+11A7 is no newer: it composes with nothing, but utf8proc takes it for a final consonant and
// loses it after a Hangul syllable.

// Capitals that got a small letter after Unicode 14, and the way to it.
struct CapitalRange {
  char32_t first, last;
  int32_t offset;
};
constexpr CapitalRange kRecentCapitals[] = {
    {0x1c89, 0x1c89, 1},      {0xa7cb, 0xa7cb, 0x264 - 0xa7cb},
    {0xa7cc, 0xa7cc, 1},      {0xa7ce, 0xa7ce, 1},
    {0xa7d2, 0xa7d2, 1},      {0xa7d4, 0xa7d4, 1},
    {0xa7da, 0xa7da, 1},      {0xa7dc, 0xa7dc, 0x19b - 0xa7dc},
    {0x10d50, 0x10d65, 0x20}, {0x16ea0, 0x16eb8, 0x1b}};

int options_of(UnicodeForm form) {
  const bool composes = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  const bool compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  return UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
         (compatible ? UTF8PROC_COMPAT : 0);
}

void append_by_utf8proc(int options, std::string_view text, std::string& out) {
  if (text.empty()) return;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  FSDP_CHECK(size >= 0, "[tokenizer] Unicode normalisation: {}", utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

bool is_unknown(char32_t character) {
  return character >= kUnknown[0].first && contains(kUnknown, character);
}

char32_t lower_case_of(char32_t character) {
  const auto found = std::find_if(
      std::begin(kRecentCapitals), std::end(kRecentCapitals),
      [=](const CapitalRange& r) { return character >= r.first && character <= r.last; });
  if (found == std::end(kRecentCapitals)) {
    return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character)));
  }
  return static_cast<char32_t>(static_cast<int32_t>(character) + found->offset);
}

// Unicode's Cased and Case_Ignorable; where a character is both, it is ignored.
constexpr CharacterRange kCasedSymbols[] = {
    {0xaa, 0xaa},     {0xba, 0xba},       {0x2160, 0x217f},  // ordinals, Roman numerals
    {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};  // in circles
constexpr CharacterRange kIgnoredMarks[] = {
    {0x27, 0x27},     {0x2e, 0x2e},     {0x3a, 0x3a},     {0xb7, 0xb7},
    {0x387, 0x387},   {0x55f, 0x55f},   {0x5f4, 0x5f4},   {0x2018, 0x2019},
    {0x2024, 0x2024}, {0x2027, 0x2027}, {0xfe13, 0xfe13}, {0xfe52, 0xfe52},
    {0xfe55, 0xfe55}, {0xff07, 0xff07}, {0xff0e, 0xff0e}, {0xff1a, 0xff1a}};

bool is_cased(char32_t character) {
  const utf8proc_category_t c = utf8proc_category(static_cast<utf8proc_int32_t>(character));
  return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LT) ||
         contains(kCasedSymbols, character);
}

bool is_case_ignored(char32_t character) {
  const utf8proc_category_t c = utf8proc_category(static_cast<utf8proc_int32_t>(character));
  return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
         c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK ||
         contains(kIgnoredMarks, character);
}

// Of the character at `begin`: after a cased one and before none, leaving ignored ones out.
bool ends_word(std::string_view text, size_t begin) {
  bool after_cased = false;
  for (size_t i = begin; i > 0;) {
    i = previous_character(text, i);
    const char32_t c = character_at(text, i);
    if (is_case_ignored(c)) continue;
    after_cased = is_cased(c);
    break;
  }
  if (!after_cased) return false;
  for (size_t i = begin + character_length(text[begin]); i < text.size();
       i += character_length(text[i])) {
    const char32_t c = character_at(text, i);
    if (!is_case_ignored(c)) return !is_cased(c);
  }
  return true;
}

void append_lower_case(std::string_view text, bool with_final_sigma, std::string& out) {
  constexpr char32_t kCapitalIWithDot = 0x130;  // the one whose lower case is two characters
  constexpr char32_t kCapitalSigma = 0x3a3, kFinalSigma = 0x3c2;
  for (size_t i = 0; i < text.size(); i += character_length(text[i])) {
    const char32_t c = character_at(text, i);
    if (c == kCapitalIWithDot) {
      out += "i\u0307";
    } else if (with_final_sigma && c == kCapitalSigma && ends_word(text, i)) {
      append_utf8(out, kFinalSigma);
    } else {
      append_utf8(out, lower_case_of(c));
    }
  }
}

}  // namespace

// What is before and after an unknown character is normalised apart: nothing is composed with it or
// ordered across it.
void to_unicode_form(UnicodeForm form, std::string_view text, std::string& out) {
  const int options = options_of(form);
  size_t kept = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t length = character_length(text[i]);
    if (length > 1 && is_unknown(character_at(text, i))) {
      append_by_utf8proc(options, text.substr(kept, i - kept), out);
      out.append(text.substr(i, length));
      kept = i + length;
    }
    i += length;
  }
  append_by_utf8proc(options, text.substr(kept), out);
}

namespace {

std::string formed(UnicodeForm form, std::string_view text, Span part) {
  std::string out;
  to_unicode_form(form, part.of(text), out);
  return out;
}

// A part is a character with the marks behind it. Characters that are composed or ordered together
// are one part.
void for_each_composed(UnicodeForm form, std::string_view text, Span among, const UseFormed& use) {
  const auto is_mark = [&](size_t i) {
    const auto c = static_cast<utf8proc_int32_t>(character_at(text, i));
    return utf8proc_get_property(c)->combining_class != 0;
  };
  Span part{among.begin, among.begin};
  std::string out;
  while (part.end < among.end) {
    Span next{part.end, part.end};
    do next.end += character_length(text[next.end]);
    while (next.end < among.end && is_mark(next.end));
    const std::string alone = formed(form, text, next);
    std::string both = formed(form, text, {part.begin, next.end});
    if (part.begin == part.end || both != out + alone) {
      part.end = next.end;
      out = std::move(both);
    } else {
      use(part, out);
      part = next;
      out = alone;
    }
  }
  use(part, out);
}

}  // namespace

// A stretch of text that begins with an ASCII character is one part if the form leaves it as it is:
// no character before an ASCII character is composed or ordered with it.
void for_each_part(UnicodeForm form, std::string_view text, const UseFormed& use) {
  const auto ascii = [&](size_t i) { return static_cast<uint8_t>(text[i]) < 0x80; };
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    const auto begins_part = [&](size_t i) {
      return ascii(i) && (!ascii(i - 1) || (i + 1 < text.size() && !ascii(i + 1)));
    };
    do ++end;
    while (end < text.size() && !begins_part(end));
    const Span part{begin, end};
    if (ascii(end - 1) || formed(form, text, part) == part.of(text)) {
      use(part, part.of(text));
    } else {
      for_each_composed(form, text, part, use);
    }
  }
}

void to_lower_case(std::string_view text, std::string& out) {
  append_lower_case(text, /*with_final_sigma=*/false, out);
}

void to_lower_case_with_final_sigma(std::string_view text, std::string& out) {
  append_lower_case(text, /*with_final_sigma=*/true, out);
}

}  // namespace fsdp::data
