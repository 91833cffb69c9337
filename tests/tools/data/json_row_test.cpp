// Rows as Python's json writes them, where NaN and Infinity are no JSON.
#include "tools/data/json_row.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

std::string row(std::string_view text) { return parse_json_row(text, "a.jsonl:3").dump(); }

TEST_CASE("words of Python outside of texts are numbers") {
  CHECK(row(R"({"a":NaN,"b":[Infinity,-Infinity],"text":"NaN \" -Infinity"})") ==
        R"({"a":null,"b":[null,null],"text":"NaN \" -Infinity"})");  // no JSON of their own
  CHECK(row(R"({"text":"\\","a": NaN })") == R"({"text":"\\","a":null})");
  CHECK(std::isnan(parse_json_row("NaN", "").get<double>()));
  const Json both = parse_json_row("[Infinity, -Infinity, 0, 5]", "");
  CHECK(both[0].get<double>() == std::numeric_limits<double>::infinity());
  CHECK(both[1].get<double>() == -std::numeric_limits<double>::infinity());
  CHECK(both[2] == 0);
  CHECK(both[3].is_number_integer());
}

TEST_CASE("numbers keep the spelling of the file, but whole ones that fit 64 bits") {
  const Json all = parse_json_row(
      "[1.50, 1e5, -0.0, 123456789012345678901, 18446744073709551615, -0, -7, true, null]", "",
      Numbers::kSpelled);
  const char* const spellings[] = {"1.50", "1e5", "-0.0", "123456789012345678901"};
  for (int i = 0; i < 4; ++i) CHECK(all[i] == spellings[i]);
  CHECK(all[4].dump() == "18446744073709551615");
  CHECK(all[5].dump() == "0");  // as Python's int
  CHECK(all[6] == -7);
  CHECK(all[7] == true);
  CHECK(all[8].is_null());
  const char* const text = R"({"a": NaN, "b": 2.50, "c": "7.1875e-300"})";
  const Json beside = parse_json_row(text, "", Numbers::kSpelled);
  CHECK(std::isnan(beside["a"].get<double>()));
  CHECK(beside["b"] == "2.50");
  CHECK(beside["c"] == "7.1875e-300");
  CHECK(parse_json_row(text, "")["b"] == 2.5);
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
