// Rows of lines and of arrays: what they are, where they begin.
#include "tools/data/row_spans.h"

#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

using Texts = std::vector<std::string>;

// Each as "line:text"; checks that each is found again where it begins.
Texts spans(std::string_view text, bool array) {
  Texts out;
  for_each_span(text, array ? Spans::kElements : Spans::kLines, "file", [&](const RowSpan& row) {
    CHECK(text.substr(row.begin, row.text.size()) == row.text);
    if (array) CHECK(span_at(text.substr(row.begin), Spans::kElements) == row.text);
    out.push_back(fmt::format("{}:{}", row.line, row.text));
  });
  return out;
}

TEST_CASE("lines that are not blank") {
  CHECK(spans("a\n\n \t\r\n b \r\nc", false) == Texts{"1:a", "4: b \r", "5:c"});
  CHECK(spans("", false).empty());
  CHECK(span_at("a b\nc", Spans::kLines) == "a b");
}

TEST_CASE("elements of an array, with brackets, commas and quotes in strings") {
  CHECK(spans_of(" \n[ {") == Spans::kElements);
  CHECK(spans_of("[]") == Spans::kElements);
  CHECK(spans_of("[\"a\", ") == Spans::kElements);
  CHECK(spans_of("[[\"a\", \"b\"],\n[") == Spans::kElements);
  CHECK(spans_of("[\"a\"]\n") == Spans::kElements);
  CHECK(spans_of("[\"a\"]\r\n\n[\"b\"]") == Spans::kLines);
  CHECK(spans_of("[[\"a\"]]\n[[]]") == Spans::kLines);
  CHECK(spans_of("[\"" + std::string(5000, 'a') + "\"]\n[\"b\"]") == Spans::kLines);
  CHECK(spans_of("[1]") == Spans::kLines);
  CHECK(spans_of("") == Spans::kLines);
  CHECK(spans(" [ 1 ,\n\n{\"a\": [1, 2], \"b\": {}}\n, \"]\\\",\\\\\",[[ ],\n{}] ]\n", true) ==
        Texts{"1:1", "3:{\"a\": [1, 2], \"b\": {}}", "4:\"]\\\",\\\\\"", "4:[[ ],\n{}]"});
  CHECK(spans("[]", true).empty());
  CHECK(spans("[ \n ]", true).empty());
  CHECK(spans("[1, ]", true) == Texts{"1:1", "1:"});
  CHECK(spans("[, 1}]", true) == Texts{"1:", "1:1}"});
}

TEST_CASE("the object that a text of rows begins with, and its first member") {
  const std::pair<const char*, const char*> texts[] = {{" {\"a\": {}}\n{", "{\"a\": {}}"},
                                                       {"{\"a\": 1}{\"a\": 2}", "{\"a\": 1}"},
                                                       {"[ {\"a\": 1}\n, {", "{\"a\": 1}"},
                                                       {"[{}]", "{}"},
                                                       {"{\n\"a\":\n[", "{\n\"a\":\n["},
                                                       {"{}, {}", ""},
                                                       {"{\"a\": 1} and more", ""},
                                                       {"[1]", ""},
                                                       {"a {}", ""},
                                                       {"", ""}};
  for (const auto& [text, object] : texts) {
    CAPTURE(text);
    CHECK(first_object(text) == object);
  }
  CHECK(first_member("{ \"a b\" : [") == "a b");
  for (const char* none : {"{}", "{a: 1}", "{\"a\", 1}", "{\"a", "", "[\"a\": 1]"}) {
    CHECK(first_member(none) == "");
  }
}

TEST_CASE("the first of some members that an object has") {
  const char* const object = R"({"a": {"b": 1}, "c": [2, }], "b": 3, )";
  CHECK(first_member(object, {"b", "c"}) == "c");
  CHECK(first_member(object, {"b"}) == "b");
  for (const char* text : {object, "{}", "[]", "", "{\"a\" 1}"}) {
    CHECK(first_member(text, {"d"}) == "");
  }
}

TEST_CASE("arrays that do not end, and text behind their end") {
  const auto refusal = [](std::string_view text) {
    return test::error_of([&] { spans(text, true); });
  };
  for (const char* open : {"[", "[\n1", "[\n{\"a\": ]", "[\n\"]", "[\n\"\\\"]", "[\n\"\\"}) {
    CAPTURE(open);
    CHECK(test::contains(refusal(open), "malformed JSON: the array does not end"));
  }
  CHECK(refusal("[1,\n{}") == "file:2: malformed JSON: the array does not end");
  CHECK(refusal("[1]\n\n ]") == "file:3: malformed JSON: text behind the end of the array");
  CHECK(refusal("[1] [2]") == "file:1: malformed JSON: text behind the end of the array");
}

}  // namespace
}  // namespace fsdp::data
