// Names that are no UTF-8, in JSON as Python writes them, and back.
#include "core/io/odd_bytes.h"

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

TEST_CASE("odd bytes: which texts are UTF-8") {
  for (const char* text :
       {"", "a/b", "caf\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xef\xb7\x90"}) {
    CHECK(is_utf8(text));
  }
  // Latin-1, cut, longer than it need be, half of a pair, beyond the last character, a tail alone.
  for (const char* text : {"caf\xe9", "\xe2\x82", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xb3\xa9",
                           "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "a\x80"}) {
    CHECK(!is_utf8(text));
  }
}

TEST_CASE("odd bytes: every byte comes back, beside characters and marks of the text's own") {
  std::string all = "\xef\xb7\x90 \xef\xb7\x90";
  for (int byte = 1; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(is_utf8(with_stand_ins(all)));
  CHECK(without_stand_ins(with_stand_ins(all)) == all);
  CHECK(with_stand_ins("caf\xc3\xa9") == "caf\xc3\xa9");
}

TEST_CASE("odd bytes: JSON has them as Python's json.dumps(os.fsdecode(name))") {
  const std::string name = "/data/caf\xe9 \"x\"\xff";
  const Json json = {{"run", name}, {"b\xfe", Json::array({"\xc3\xa9"})}};
  const std::string text = json.dump();
  CHECK(text == "{\"run\":\"/data/caf\\udce9 \\\"x\\\"\\udcff\",\"b\\udcfe\":[\"\xc3\xa9\"]}");
  CHECK(parse_json(text, "f.json") == json);
  CHECK(Json::parse(text) == json);
  CHECK(Json::parse("\"\\uDCE9\"").text() == "\xe9");
  CHECK(Json(name).dump({.replace = true}) == "\"/data/caf\xef\xbf\xbd \\\"x\\\"\xef\xbf\xbd\"");
  const test::TempFolder folder;
  write_json_file(folder / "x.json", json);
  CHECK(read_json_file(folder / "x.json") == json);
}

TEST_CASE("odd bytes: other escapes mean what they mean") {
  CHECK(Json::parse(R"("\ud83d\udc80 \\udce9")").text() == "\xf0\x9f\x92\x80 \\udce9");
  for (const char* text : {R"("\udc7f")", R"("\ud800")", R"("\ud800\udc")", R"("\udc")"}) {
    CHECK(
        test::contains(test::error_of([&] { parse_json(text, "f.json"); }), "f.json:1: malformed"));
  }
  CHECK(escapes_as_stand_ins("\\") == "\\");
  CHECK(escapes_as_stand_ins("a\\udcg9") == "a\\udcg9");
  for (const char* text : {"C:\\udce9", "\\uDCE9\\uDCFf", "\\udcff\\ufdd0\\uf"}) {
    CHECK(escapes_as_written(escapes_as_stand_ins(text)) == text);
  }
  // Rows of a text have no names of files.
  CHECK_THROWS_AS(parse_json_line(R"({"text": "\udce9"})", "rows.jsonl:1"), Error);
}

}  // namespace
}  // namespace fsdp
