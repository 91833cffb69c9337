// Characters of UTF-8 text and the classes that tokenizers ask for, as of Unicode 16 where nothing
// else is said.
// Text here is valid UTF-8 (tools/data/tokenizer/utf8.h checks it). Not here: patterns (regex.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace fsdp::data {

constexpr std::string_view kBlank = "\u2581";  // stands for a space

inline bool is_latin_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
// Bytes of the character that starts with this byte.
inline size_t character_length(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}
char32_t character_at(std::string_view text, size_t begin);
// The byte where the character before `end` starts; end > 0.
size_t previous_character(std::string_view text, size_t end);
size_t count_characters(std::string_view text);
void append_utf8(std::string& out, char32_t character);

bool is_white_space(char32_t character);
bool is_letter(char32_t character);       // \p{L}
bool is_number(char32_t character);       // of the Digits pre-tokenizer
bool is_punctuation(char32_t character);  // of the Punctuation pre-tokenizer: Unicode 8
bool is_word(char32_t character);         // what an added token with single_word may not touch

struct CharacterRange {
  char32_t first, last;
};
// `ranges`: in order.
bool contains(std::span<const CharacterRange> ranges, char32_t character);
// White space, and the characters of \p{L} and \p{N} that came with Unicode 15 and 16: PCRE2's
// tables may be older than the tokenizers library's.
std::span<const CharacterRange> white_space();
std::span<const CharacterRange> recent_letters();
std::span<const CharacterRange> recent_numbers();

// ByteLevel: the printable character that stands for each byte, and back (-1: none).
const std::array<char32_t, 256>& byte_characters();
int byte_of_character(char32_t character);

}  // namespace fsdp::data
