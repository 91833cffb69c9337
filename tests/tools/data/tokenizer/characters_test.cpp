// Every code point has the class that the tokenizers library sees, in our tables and in translated
// regular expressions.
#include "tools/data/tokenizer/characters.h"

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/data/tokenizer/regex.h"

namespace fsdp::data {
namespace {

template <typename IsMember>
int64_t differences(const std::string& name, const IsMember& is_member) {
  static const Json classes = read_json_file(test::fixture_path("tokenizers/unicode_classes.json"));
  for (const Json& entry : classes) {
    if (entry["class"] != name) continue;
    std::vector<bool> expected(0x110000);
    for (const Json& range : entry["ranges"]) {
      for (auto c = range[0].get<size_t>(); c <= range[1].get<size_t>(); ++c) expected[c] = true;
    }
    int64_t out = 0;
    for (char32_t c = 0; c < 0x110000; ++c) {
      const bool surrogate = c >= 0xd800 && c <= 0xdfff;
      if (!surrogate && is_member(c) != expected[c]) ++out;
    }
    return out;
  }
  return -1;
}

int64_t regex_differences(const std::string& name, std::string_view pattern) {
  const Regex regex(pattern);
  std::string text;
  return differences(name, [&](char32_t c) {
    text.clear();
    append_utf8(text, c);
    Span match;
    return regex.find(text, 0, match) && match.end == text.size();
  });
}

TEST_CASE("classes of all code points") {
  CHECK(differences("whitespace", is_white_space) == 0);
  CHECK(differences("added_token_strip", is_white_space) == 0);
  CHECK(differences("L", is_letter) == 0);
  CHECK(differences("digits_pre_tokenizer", is_number) == 0);
  CHECK(differences("punctuation_pre_tokenizer", is_punctuation) == 0);
  CHECK(differences("added_token_word", is_word) == 0);
  CHECK(differences("L", is_number) > 0);  // the comparison compares
}

TEST_CASE("classes of regular expressions") {
  CHECK(regex_differences("L", "\\p{L}") == 0);
  CHECK(regex_differences("N", "[\\p{N}]") == 0);
  CHECK(regex_differences("whitespace", "\\s") == 0);
  CHECK(regex_differences("whitespace", "[^\\S]") == 0);
}

TEST_CASE("characters of UTF-8 there and back") {
  for (const char32_t c : {0x0u, 0x7fu, 0x80u, 0x7ffu, 0x800u, 0xffffu, 0x10000u, 0x10ffffu}) {
    std::string text = "x";
    append_utf8(text, c);
    CHECK(character_at(text, 1) == c);
    CHECK(character_length(text[1]) == text.size() - 1);
    CHECK(previous_character(text, text.size()) == 1);
  }
}

TEST_CASE("bytes as characters") {
  CHECK(byte_characters()[' '] == U'\u0120');
  CHECK(byte_characters()['\n'] == U'\u010a');
  CHECK(byte_characters()['!'] == U'!');
  CHECK(byte_characters()[0xad] == U'\u0143');
  for (int byte = 0; byte < 256; ++byte) {
    CHECK(byte_of_character(byte_characters()[static_cast<size_t>(byte)]) == byte);
  }
  CHECK(byte_of_character(U' ') == -1);
  CHECK(byte_of_character(U'\u0144') == -1);
  CHECK(byte_of_character(U'\U0001f600') == -1);
}

}  // namespace
}  // namespace fsdp::data
