// Strict parsing: what is refused, and that the error says where.
#include "core/io/json.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

std::string refusal(std::string_view text) {
  return test::error_of([&] { parse_json(text, "f.json"); });
}

TEST_CASE("the line of a mistake") {
  CHECK(test::contains(refusal("{\n\"a\": 1,\n\"b\": x}"), "f.json:3: malformed JSON: "));
  CHECK(test::contains(refusal("{\"a\": 1"), "f.json:1: malformed JSON: "));
  CHECK(test::contains(refusal(""), "f.json:1: malformed JSON: "));
  CHECK(test::contains(refusal("{} {}"), "f.json:1: malformed JSON: "));
}

TEST_CASE("duplicate keys, also deep inside; the same key in two objects is fine") {
  CHECK(refusal(R"({"a": 1, "a": 2})") == "f.json: malformed JSON: duplicate key \"a\"");
  CHECK(refusal(R"({"x": [{"a": 1, "b": 2, "a": 2}]})") ==
        "f.json: malformed JSON: duplicate key \"a\"");
  CHECK(parse_json(R"([{"a": 1}, {"a": {"a": 2}}])", "f.json")[1]["a"]["a"] == 2);
}

TEST_CASE("invalid UTF-8 and numbers out of range") {
  CHECK(test::contains(refusal("{\"a\": \"\xff\"}"), "f.json:1: malformed JSON: "));
  CHECK(test::contains(refusal("[1e999]"), "f.json: malformed JSON: "));
}

TEST_CASE("more than 64 levels are refused, however they are closed") {
  const auto nested = [](size_t levels, const std::string& open, const std::string& close) {
    std::string text;
    for (size_t i = 0; i < levels; ++i) text += open;
    text += "1";
    for (size_t i = 0; i < levels; ++i) text += close;
    return text;
  };
  const std::string too_deep = "f.json: malformed JSON: nested more than 64 levels deep";
  for (const size_t levels : {65, 200'000}) {
    CHECK(refusal(nested(levels, "[", "]")) == too_deep);
    CHECK(refusal(nested(levels, "{\"a\":", "}")) == too_deep);
    CHECK(refusal(std::string(levels, '[')) == too_deep);
  }
  CHECK(refusal(nested(64, "[", "]")) == "");
  CHECK(refusal(nested(64, "{\"a\":", "}")) == "");
}

TEST_CASE("written files keep the order of keys and are valid UTF-8 whatever the text") {
  test::TempFolder folder;
  OrderedJson value;
  value["z"] = 1;
  value["a"] = "cut \xe6\x97";
  write_json_file(folder / "x.json", value);
  CHECK(read_file(folder / "x.json") == "{\n  \"z\": 1,\n  \"a\": \"cut \xef\xbf\xbd\"\n}\n");
}

}  // namespace
}  // namespace fsdp
