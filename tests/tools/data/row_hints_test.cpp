// Files of rows in a form that is not read, and what is said of them.
#include "tools/data/row_hints.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

std::string hint(std::string_view text, bool has_template = false,
                 TextFormat format = TextFormat::kJsonl) {
  return hint_of_rows(text, "a b.json", format, has_template);
}

TEST_CASE("row hints: rows within an object, also behind other members") {
  const char* const said =
      "its rows seem to be in \"data\": jq -c '.data[]' 'a b.json' makes a "
      "line of each";
  for (const bool has_template : {false, true}) {
    CHECK(hint(R"({"data": [{"q": 1}]})", has_template) == said);
    CHECK(hint("{\n\"version\": \"1\",\n\"tags\": [{\"a\": 1}],\n\"data\": [ {\"q\": 1}, {}]}\n",
               has_template) == said);
  }
  CHECK(test::contains(
      hint(R"({"features": [{"name": "text"}], "rows": [{"row_idx": 0, "row": {"text": "a"}}]})"),
      "jq -c '.rows[].row' 'a b.json'"));
  CHECK(test::contains(hint(R"({"my-rows": [{"q": 1}]})"),
                       "in \"my-rows\": jq -c '.[\"my-rows\"][]' 'a b.json'"));
  for (const char* none : {R"({"data": [1]})", R"({"data": {"a": 1}})", R"({"data": [{"q": 1}]} x)",
                           "{\"data\": [{}]}\n{}", "[{\"data\": [{}]}]", "", "{", "{}"}) {
    CAPTURE(none);
    CHECK(hint(none) == "");
  }
}

TEST_CASE("row hints: columns in the place of rows, as pandas and datasets write them") {
  const auto columns = [](std::string_view text) { return hint_of_columns(text, "a b.json"); };
  CHECK(columns(R"({"q": ["a", "b"], "r": ["c", 4]})") ==
        "it holds columns, where rows are read; convert it: python3 -c 'import sys, pandas as p; "
        "p.read_json(sys.argv[1], orient=\"columns\", dtype=False, convert_dates=False)"
        ".to_json(sys.argv[2], orient=\"records\", lines=True)' 'a b.json' 'a b.rows.jsonl'");
  CHECK(columns("{\n \"q\": {\"0\": \"a\", \"1\": \"b\"},\n \"r\": {\"0\": 1, \"1\": NaN}\n}\n") !=
        "");
  CHECK(test::contains(columns(R"({"columns": ["q"], "index": [0], "data": [["a"]]})"),
                       "orient=\"split\""));
  CHECK(columns(R"({"a:b": ["a", "b"], "r": ["c", 4]})") != "");
  for (const char* row : {R"({"moves": ["a", "b"]})", R"({"q": ["a", "b"], "r": ["c"]})",
                          R"({"q": ["a"], "r": ["c"]})", R"({"q": "a", "r": ["c", "d"]})",
                          "{\"q\": [1, 2], \"r\": [1, 2]}\n{\"q\": [1]}", "[[1]]",
                          R"({"q": [}, "r": [1, 2]})", "text"}) {
    CAPTURE(row);
    CHECK(columns(row) == "");
  }
}

TEST_CASE("row hints: zero bytes at the end") {
  CHECK(hint(std::string_view("{\"text\": \"a\"}\n\0\0", 16)) ==
        "byte 14 is zero, as where a loss of power, or a full disk, cut a file");
}

TEST_CASE("row hints: formats by the names of fields") {
  CHECK(hint(R"({"question": "q", "answers": {"text": [], "answer_start": []}})", true) ==
        "its rows look like SQuAD's: data.format: squad");
  CHECK(hint(R"({"instruction": "a"})") == "its rows look like Alpaca's: data.format: alpaca");
  CHECK(hint(R"({"instruction": "a"})", true) == "");
  CHECK(hint("{\"data\": [{\"paragraphs\": []}]}") ==
        "it looks like a file of SQuAD: data.format: squad");
  CHECK(hint("instruction,output\n", false, TextFormat::kCsv) != "");
  CHECK(hint("a;b\n1;2\n", false, TextFormat::kCsv) ==
        "its cells seem to stand between ; where a CSV file has ,");
  CHECK(hint("a;b\n1;2\n", false, TextFormat::kTsv) == "");
}

}  // namespace
}  // namespace fsdp::data
