// Chat templates: what jinja2 has and templates of models do not use is an error with its place and
// its name.
#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/data/chat/syntax.h"

namespace fsdp::data::jinja {
namespace {

std::string parse_error(const std::string& text) {
  return test::error_of([&] { parse(Source(text, "chat_template.jinja")); });
}

}  // namespace

TEST_CASE("chat parser: constructs that are not known") {
  const std::pair<const char*, const char*> kCases[] = {
      {"a\n\n  {% call f() %}", "3:3: {% call %}"},
      {"{% include 'x' %}", "1:1: {% include %}"},
      {"{% raw %}{{ }{% endraw %}", "1:1: {% raw %}"},
      {"{% with %}{% endwith %}", "1:1: {% with %}"},
      {"{% set a, b = 1, 2 %}", "1:9: set with several names"},
      {"{% set a | upper %}{% endset %}", "1:10: a set block with a filter"},
      {"{% for a, b, c in d %}{% endfor %}", "1:14: a for with more than two names"},
      {"{% for a in b recursive %}{% endfor %}", "1:15: recursive"},
      {"{% for a in b %}{% else %}{% endfor %}", "1:17: {% else %} here"},
      {"{% for a in b %}{% macro f() %}{% endmacro %}{% endfor %}", "1:17: {% macro %} within"},
      {"{% macro f() %}{{ varargs }}{% endmacro %}", "1:19: varargs in a macro"},
      {"{% break %}", "1:1: {% break %} outside of a for"},
      {"{%+ if a %}", "1:1: {%+"},
      {"{{ 1 / 2 }}", "1:6: /"},
      {"{{ 2 ** 3 }}", "1:6: **"},
      {"{{ 7 // 2 }}", "1:6: //"},
      {"{{ a | first }}", "1:8: the filter first"},
      {"{{ a is number }}", "1:9: the test number"},
      {"{{ a.__class__ }}", "1:5: an attribute that begins with _"},
      {"{{ 0x10 }}", "1:4: the number 0x10"},
      {"{{ '\\N{BULLET}' }}", "1:5: \\N"},
      {"{{ a ? b }}", "1:6: ?"},
      {"{{ é }}", "1:4: é"}};
  for (const auto& [text, error] : kCases) {
    CAPTURE(text);
    CHECK(parse_error(text).starts_with(std::string("chat_template.jinja:") + error));
    CHECK(test::contains(parse_error(text), "is not known"));
  }
}

TEST_CASE("chat parser: broken templates") {
  CHECK(parse_error("{% if a %}x") == "chat_template.jinja:1:11: a block without its {% endif %}");
  CHECK(parse_error("{{ a b }}") == "chat_template.jinja:1:6: expected }}, got b");
  CHECK(parse_error("{{ a") == "chat_template.jinja:1:5: an output {{ without its }}");
  CHECK(parse_error("{# a") == "chat_template.jinja:1:3: a comment {# without its #}");
  CHECK(parse_error("{{ 'a }}") == "chat_template.jinja:1:4: a text without its end");
  CHECK(parse_error("{{ (1] }}") == "chat_template.jinja:1:6: a ] that closes nothing");
  CHECK(parse_error("{{ f(a=1, 2) }}") ==
        "chat_template.jinja:1:11: an argument without a name behind others");
  CHECK(parse_error("{{ 99999999999999999999 }}") ==
        "chat_template.jinja:1:4: the number 99999999999999999999 has more than 64 bits");
}

}  // namespace fsdp::data::jinja
