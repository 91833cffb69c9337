// Categories of utf8proc and what came after it. Contract: tools/data/tokenizer/characters.h.
#include "tools/data/tokenizer/characters.h"

#include <algorithm>

#include <utf8proc.h>

namespace fsdp::data {
namespace {

constexpr CharacterRange kWhiteSpace[] = {
    {0x9, 0xd},       {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
    {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};
// Of Unicode 15 to 16, against Unicode 14.
constexpr CharacterRange kRecentLetters[] = {
    {0x1c89, 0x1c8a},   {0xa7cb, 0xa7cd},   {0xa7da, 0xa7dc},   {0x105c0, 0x105f3},
    {0x10d4a, 0x10d65}, {0x10d6f, 0x10d85}, {0x10ec2, 0x10ec4}, {0x1123f, 0x11240},
    {0x11380, 0x11389}, {0x1138b, 0x1138b}, {0x1138e, 0x1138e}, {0x11390, 0x113b5},
    {0x113b7, 0x113b7}, {0x113d1, 0x113d1}, {0x113d3, 0x113d3}, {0x11bc0, 0x11be0},
    {0x11f02, 0x11f02}, {0x11f04, 0x11f10}, {0x11f12, 0x11f33}, {0x1342f, 0x1342f},
    {0x13441, 0x13446}, {0x13460, 0x143fa}, {0x16100, 0x1611d}, {0x16d40, 0x16d6c},
    {0x18cff, 0x18cff}, {0x1b132, 0x1b132}, {0x1b155, 0x1b155}, {0x1df25, 0x1df2a},
    {0x1e030, 0x1e06d}, {0x1e4d0, 0x1e4eb}, {0x1e5d0, 0x1e5ed}, {0x1e5f0, 0x1e5f0},
    {0x2b739, 0x2b739}, {0x2ebf0, 0x2ee5d}, {0x31350, 0x323af}};
constexpr CharacterRange kRecentNumbers[] = {
    {0x10d40, 0x10d49}, {0x116d0, 0x116e3}, {0x11bf0, 0x11bf9}, {0x11f50, 0x11f59},
    {0x16130, 0x16139}, {0x16d70, 0x16d79}, {0x1ccf0, 0x1ccf9}, {0x1d2c0, 0x1d2d3},
    {0x1e4f0, 0x1e4f9}, {0x1e5f1, 0x1e5fa}};
// Numbers of Unicode 17, which the Digits pre-tokenizer knows already.
constexpr CharacterRange kRecentDigits[] = {{0x11de0, 0x11de9}, {0x16ff4, 0x16ff6}};
constexpr CharacterRange kRecentWords[] = {
    {0x897, 0x897},     {0xcf3, 0xcf3},     {0xece, 0xece},     {0x1c89, 0x1c8a},
    {0xa7cb, 0xa7cd},   {0xa7da, 0xa7dc},   {0x105c0, 0x105f3}, {0x10d40, 0x10d65},
    {0x10d69, 0x10d6d}, {0x10d6f, 0x10d85}, {0x10ec2, 0x10ec4}, {0x10efc, 0x10eff},
    {0x1123f, 0x11241}, {0x11380, 0x11389}, {0x1138b, 0x1138b}, {0x1138e, 0x1138e},
    {0x11390, 0x113b5}, {0x113b7, 0x113c0}, {0x113c2, 0x113c2}, {0x113c5, 0x113c5},
    {0x113c7, 0x113ca}, {0x113cc, 0x113d3}, {0x113e1, 0x113e2}, {0x116d0, 0x116e3},
    {0x11bc0, 0x11be0}, {0x11bf0, 0x11bf9}, {0x11f00, 0x11f10}, {0x11f12, 0x11f3a},
    {0x11f3e, 0x11f42}, {0x11f50, 0x11f5a}, {0x1342f, 0x1342f}, {0x13440, 0x13455},
    {0x13460, 0x143fa}, {0x16100, 0x16139}, {0x16d40, 0x16d6c}, {0x16d70, 0x16d79},
    {0x18cff, 0x18cff}, {0x1b132, 0x1b132}, {0x1b155, 0x1b155}, {0x1ccf0, 0x1ccf9},
    {0x1df25, 0x1df2a}, {0x1e030, 0x1e06d}, {0x1e08f, 0x1e08f}, {0x1e4d0, 0x1e4f9},
    {0x1e5d0, 0x1e5fa}, {0x2b739, 0x2b739}, {0x2ebf0, 0x2ee5d}, {0x31350, 0x323af}};
// Letters in circles and squares, which are symbols by category and alphabetic by property.
constexpr CharacterRange kAlphabeticSymbols[] = {
    {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

// The Punctuation pre-tokenizer knows the punctuation of Unicode 8 (asked about every code point:
// tests/differential/unicode_tables.py). Since then two characters left that class, and these came
// up to Unicode 18; a range may hold others that never were punctuation.
constexpr CharacterRange kRecentPunctuation[] = {
    {0x61d, 0x61d},     {0x9fd, 0xa76},     {0xc77, 0xc84},     {0x1b4e, 0x1b4f},
    {0x1b7d, 0x1b7f},   {0x2e43, 0x2e63},   {0x10d6e, 0x10f89}, {0x113d4, 0x1145d},
    {0x11660, 0x116b9}, {0x1183b, 0x11fff}, {0x12ff1, 0x12ff2}, {0x16d6d, 0x16fe2},
    {0x1e5ff, 0x1e95f}};
constexpr char32_t kFormerPunctuation[] = {0x166d, 0x111c9};

utf8proc_category_t category(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

std::array<char32_t, 256> make_byte_characters() {
  std::array<char32_t, 256> out{};
  char32_t next = 0x100;  // for bytes that do not print
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    out[byte] = prints ? byte : next++;
  }
  return out;
}

}  // namespace

bool contains(std::span<const CharacterRange> ranges, char32_t character) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), character,
                       [](char32_t c, const CharacterRange& r) { return c < r.first; });
  return after != ranges.begin() && character <= std::prev(after)->last;
}

char32_t character_at(std::string_view text, size_t begin) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[i])); };
  const char32_t first = byte(begin);
  switch (character_length(text[begin])) {
    case 1:
      return first;
    case 2:
      return (first & 0x1f) << 6 | (byte(begin + 1) & 0x3f);
    case 3:
      return (first & 0x0f) << 12 | (byte(begin + 1) & 0x3f) << 6 | (byte(begin + 2) & 0x3f);
    default:
      return (first & 0x07) << 18 | (byte(begin + 1) & 0x3f) << 12 | (byte(begin + 2) & 0x3f) << 6 |
             (byte(begin + 3) & 0x3f);
  }
}

size_t previous_character(std::string_view text, size_t end) {
  do --end;
  while ((static_cast<uint8_t>(text[end]) & 0xc0) == 0x80);
  return end;
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

void append_utf8(std::string& out, char32_t character) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

std::span<const CharacterRange> white_space() { return kWhiteSpace; }
std::span<const CharacterRange> recent_letters() { return kRecentLetters; }
std::span<const CharacterRange> recent_numbers() { return kRecentNumbers; }

bool is_white_space(char32_t character) { return contains(kWhiteSpace, character); }

bool is_letter(char32_t character) {
  const utf8proc_category_t c = category(character);
  return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) ||
         contains(kRecentLetters, character);
}

bool is_number(char32_t character) {
  const utf8proc_category_t c = category(character);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO ||
         contains(kRecentNumbers, character) || contains(kRecentDigits, character);
}

bool is_punctuation(char32_t character) {
  const utf8proc_category_t c = category(character);
  const bool ascii_symbol =
      character < 0x80 && c >= UTF8PROC_CATEGORY_SM && c <= UTF8PROC_CATEGORY_SO;
  if (ascii_symbol || character == kFormerPunctuation[0] || character == kFormerPunctuation[1]) {
    return true;
  }
  return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO &&
         !contains(kRecentPunctuation, character);
}

bool is_word(char32_t character) {
  const utf8proc_category_t c = category(character);
  return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC ||
         character == 0x200c || character == 0x200d || contains(kAlphabeticSymbols, character) ||
         contains(kRecentWords, character);
}

const std::array<char32_t, 256>& byte_characters() {
  static const std::array<char32_t, 256> table = make_byte_characters();
  return table;
}

int byte_of_character(char32_t character) {
  static const std::array<int16_t, 512> table = [] {
    std::array<int16_t, 512> out;
    out.fill(-1);
    for (size_t byte = 0; byte < 256; ++byte) {
      out[byte_characters()[byte]] = static_cast<int16_t>(byte);
    }
    return out;
  }();
  return character < table.size() ? table[character] : -1;
}

}  // namespace fsdp::data
