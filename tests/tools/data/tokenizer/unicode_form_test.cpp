// Every code point, alone and among marks, normalises as in the tokenizers library, whatever
// Unicode utf8proc has (fixtures/tokenizers/normalizers.json, by
// tests/differential/unicode_tables.py).
#include "tools/data/tokenizer/unicode_form.h"

#include <doctest/doctest.h>

#include "core/io/checksum.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/data/tokenizer/characters.h"

namespace fsdp::data {
namespace {

std::string normalised(const std::string& name, std::string_view text) {
  std::string out;
  if (name == "Lowercase") {
    to_lower_case(text, out);
  } else {
    to_unicode_form(name == "NFC"    ? UnicodeForm::kNfc
                    : name == "NFD"  ? UnicodeForm::kNfd
                    : name == "NFKC" ? UnicodeForm::kNfkc
                                     : UnicodeForm::kNfkd,
                    text, out);
  }
  return out;
}

// A code point alone; after and before marks of the highest and the lowest class; between a letter
// and an accent.
std::string lines_of(char32_t code_point) {
  std::string c;
  append_utf8(c, code_point);
  return c + "\n\u0345" + c + "\n" + c + "\u0334\ne" + c + "\u0301\n";
}

const Json& fixture() {
  static const Json json = read_json_file(test::fixture_path("tokenizers/normalizers.json"));
  return json;
}

TEST_CASE("every code point, alone and among marks") {
  const auto block = fixture()["block"].get<char32_t>();
  CHECK(fixture()["checksums"].size() == 5);
  for (const auto& [name, checksums] : fixture()["checksums"].items()) {
    REQUIRE(checksums.size() * block == 0x110000);
    for (char32_t number = 0; number < checksums.size(); ++number) {
      std::string text;
      for (char32_t c = number * block; c < (number + 1) * block; ++c) {
        if (c < 0xd800 || c > 0xdfff) text += lines_of(c);
      }
      INFO(name, " from code point ", number * block);
      CHECK(fmt::format("{:016x}", checksum(normalised(name, text))) ==
            checksums[number].get<std::string>());
    }
  }
}

TEST_CASE("characters that only a newer Unicode composes or orders") {
  CHECK(fixture()["texts"].size() > 40);
  for (const Json& record : fixture()["texts"]) {
    for (const auto& [name, expected] : record.items()) {
      if (name == "input") continue;
      INFO(name, " of ", record.dump());
      CHECK(normalised(name, record["input"].get<std::string>()) == expected.get<std::string>());
    }
  }
  CHECK(normalised("NFC", "\u0301\u0eba") == "\u0301\u0eba");
  CHECK(normalised("Lowercase", "\ua7d2") == "\ua7d3");
}

TEST_CASE("a text in parts becomes what it becomes as a whole, and no part could be cut") {
  using enum UnicodeForm;
  for (const UnicodeForm form : {kNfc, kNfd, kNfkc, kNfkd}) {
    std::string text;
    for (char32_t c = 0; c < 0x3400; ++c) text += lines_of(c);
    for (char32_t c = 0xabe0; c < 0xac40; ++c) text += lines_of(c);
    for (char32_t c = 0xf900; c < 0x11400; ++c) text += lines_of(c);
    std::string expected, joined;
    to_unicode_form(form, text, expected);
    size_t end = 0;
    bool adjoin = true;
    for_each_part(form, text, [&](Span part, std::string_view formed) {
      adjoin &= part.begin == end && part.end > end;
      end = part.end;
      joined += formed;
    });
    CHECK((adjoin && end == text.size()));
    CHECK(joined == expected);
  }
  std::vector<std::string> parts;
  for_each_part(kNfc, "ab \u00e9e\u0301\u4e2d\u1112\u1161\u11ab\u1112!?",
                [&](Span, std::string_view formed) { parts.emplace_back(formed); });
  CHECK(parts ==
        std::vector<std::string>{"ab", " \u00e9", "\u00e9", "\u4e2d", "\ud55c", "\u1112", "!?"});
}

// Expected: Python's str.lower().
TEST_CASE("lower case with a final sigma") {
  const std::pair<const char*, const char*> cases[] = {
      {"\u03a3\u0391\u03a3", "\u03c3\u03b1\u03c2"},  // at the beginning and the end
      {"A\u03a3B \u03a3 A\u03a3 B", "a\u03c3b \u03c3 a\u03c2 b"},
      {"A.\u03a3'!", "a.\u03c2'!"},  // marks are ignored on both sides
      {"A\u03a3'B A-\u03a3", "a\u03c3'b a-\u03c3"},
      {"A\u0301\u03a3\u0301", "a\u0301\u03c2\u0301"},
      {"\u2160\u03a3\u24b6\u03a3", "\u2170\u03c3\u24d0\u03c2"},  // symbols with a case
      {"1\u03a3 \u4e2d\u03a3", "1\u03c3 \u4e2d\u03c3"},
      {"\u0130\u03a3\u03a3", "i\u0307\u03c3\u03c2"}};
  for (const auto& [text, expected] : cases) {
    std::string out;
    to_lower_case_with_final_sigma(text, out);
    CHECK(out == expected);
  }
}

TEST_CASE("what is normalised is appended") {
  std::string out = "e";
  to_unicode_form(UnicodeForm::kNfc, "\u0301", out);
  to_lower_case("A\u0130\u03a3", out);
  CHECK(out == "e\u0301ai\u0307\u03c3");
}

}  // namespace
}  // namespace fsdp::data
