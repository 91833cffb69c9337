// Rows as Python's json writes them, where NaN and Infinity are no JSON.
#include "tools/data/json_row.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

std::string row(std::string_view text) { return parse_json_row(text, "a.jsonl:3").dump(); }

TEST_CASE("words of Python outside of texts are numbers") {
  CHECK(row(R"({"a":NaN,"b":[Infinity,-Infinity],"text":"NaN \" -Infinity"})") ==
        R"({"a":0,"b":[0,0],"text":"NaN \" -Infinity"})");
  CHECK(row(R"({"text":"\\","a": NaN })") == R"({"a":0,"text":"\\"})");
  CHECK(parse_json_row("NaN", "").is_number());
}

TEST_CASE("all else that is no JSON stays an error, with the place of the row") {
  for (const char* text : {"{\"a\":nan}", "{\"a\":+NaN}", "{\"a\":NaN", "{\"NaN", "{NaN:1}",
                           "NaN NaN", "{\"a\":None}", "{\"a\":1,\"a\":NaN}"}) {
    CAPTURE(text);
    CHECK(test::error_of([&] { row(text); }).starts_with("a.jsonl:3: malformed JSON: "));
  }
}

}  // namespace
}  // namespace fsdp::data
