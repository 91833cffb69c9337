// Expressions, statements, filters, tests, methods and functions of chat templates, one small
// template at a time: the text that jinja2 makes, or that it raises.
#include <doctest/doctest.h>

#include "tests/support/chat_goldens.h"

namespace fsdp::data {

TEST_CASE("chat expressions: as jinja2") {
  const Json table = test::chat_fixture("expressions.json");
  RenderInput input = test::chat_input(table.at("messages"));
  input.kwargs = &table.at("kwargs");
  for (const Json& row : table.at("cases")) {
    const std::string source = row[0].text();
    CAPTURE(source);
    std::string text;
    const std::string error =
        test::error_of([&] { text = ChatTemplate(source, "t").render(input).text; });
    CAPTURE(error);
    CHECK(error.empty() == row[1].is_string());
    if (row[1].is_string()) CHECK(text == row[1].text());
  }
  CHECK(table.at("cases").size() >= 399);
}

}  // namespace fsdp::data
