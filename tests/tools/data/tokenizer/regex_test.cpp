// Patterns of Oniguruma mean on PCRE2 what they meant, or are refused.
#include "tools/data/tokenizer/regex.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/data/tokenizer/pattern.h"

namespace fsdp::data {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  std::vector<std::string> out;
  Pattern(pattern).for_each(text, [&](Span match) { out.emplace_back(match.of(text)); });
  return out;
}

using Strings = std::vector<std::string>;

TEST_CASE("what is rewritten") {
  CHECK(matches("[a[bc]d]+", "abcdx[b]") == Strings{"abcd", "b"});
  CHECK(matches("[^a[bc]]", "abcd[") == Strings{"d", "["});
  CHECK(matches("^b$", "a\nb\nc") == Strings{"b"});
  CHECK(matches("a{,2}b", "aaab") == Strings{"aab"});
  CHECK(matches("\\v", "\n\v") == Strings{"\v"});  // PCRE2: any vertical space
  CHECK(matches("\\u00e9|\\x{4e2d}|\\x41", "\u00e9A\u4e2d") == Strings{"\u00e9", "A", "\u4e2d"});
  CHECK(matches("\\s", "\u180e\u0085\u001c") == Strings{"\u0085"});
  CHECK(matches("(?i:'s)", "'S'\u017f't") == Strings{"'S", "'\u017f"});
  CHECK(matches("(a)(?:b)", "ab") == Strings{"ab"});
  CHECK(matches("[-a]|[!-/]|[a-]", "-a/") == Strings{"-", "a", "/"});
  CHECK(matches("\\p{^L}|\\P{N}", "a1!") == Strings{"a", "1", "!"});
  CHECK(matches("\\d|\\p{Lu}", "a\u0663B") == Strings{"\u0663", "B"});
  CHECK(matches("[\\]\\-\\^]", "]-^") == Strings{"]", "-", "^"});
}

TEST_CASE("empty matches") {
  CHECK(matches("x*", "axb") == Strings{"", "x", ""});
  CHECK(matches("", "\u00e9") == Strings{"", ""});
}

TEST_CASE("what is refused, by name") {
  const auto refused = [](std::string_view pattern, std::string_view what) {
    INFO(pattern);
    const std::string error = test::error_of([&] { translate_regex(pattern); });
    CHECK(test::contains(error, what));
    CHECK(test::contains(error, "regular expression \"" + std::string(pattern) + "\""));
  };
  refused("\\w+", "\\w at byte 2 is not supported");
  refused("a\\b", "\\b");
  refused("\\h", "\\h");
  refused("(a)\\1", "\\1");
  refused("[[:alpha:]]", "a POSIX class");
  refused("[a&&b]", "&&");
  refused("[a[^b]]", "[^ in a class");
  refused("[^\\P{L}]", "\\P in a class");
  refused("(?i)a", "(?i at byte 0");
  refused("(*FAIL)", "(*F");
  refused("a{2}+", "a + after {}");
  refused("a{", "{ at byte 1");
  refused("[a", "[ without ]");
  refused("[]", "an empty class");
  refused("\\", "its end");
  refused("\\p{L", "\\p without {name}");
  refused("\\x{110000}", "a number of a character");
  refused("[b-a]", "a range");
  refused(std::string(65, '[') + "a" + std::string(65, ']'), "a class 65 deep");
  CHECK(test::error_of([] { translate_regex(std::string(2'000'000, '[')); }) ==
        "regular expression: expected at most 65536 bytes, got 2000000");
  const std::string deepest = std::string(64, '[') + "a" + std::string(64, ']');
  CHECK(matches(deepest, "ba") == Strings{"a"});
  CHECK(test::contains(test::error_of([] { Regex("(a"); }), "missing closing parenthesis"));
  CHECK(test::contains(test::error_of([] { Regex("\\p{Nonsense}"); }), "Nonsense"));
}

TEST_CASE("long runs need no stack") {
  const std::string text(1 << 20, 'a');
  CHECK(matches("\\p{L}+", text).size() == 1);
  CHECK(matches("\\s+(?!\\S)|\\s+", std::string(1 << 20, ' ') + "x").size() == 2);
}

}  // namespace
}  // namespace fsdp::data
