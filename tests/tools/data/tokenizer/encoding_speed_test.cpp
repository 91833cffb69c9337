// What is measured of a tokenizer, and which rows of other programs it is set beside.
#include "tools/data/tokenizer/encoding_speed.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("encoding speed: both ways see the whole text, also without a line break at its end") {
  const test::TempFolder folder;
  for (const std::string text : {"one\n\ntwo\nthree", "one\n", "\n", ""}) {
    CAPTURE(text);
    const auto speeds = measure_encoding("bytes", folder.write("text.txt", text));
    REQUIRE(speeds.size() == 2);
    CHECK(speeds[0].way == "line by line");
    CHECK(speeds[1].way == "whole file");
    for (const EncodingSpeed& speed : speeds) {
      CHECK(speed.bytes == text.size());
      CHECK(speed.tokens == text.size());
      CHECK((speed.first > 0) == !text.empty());
      CHECK(speed.fastest >= speed.first);
    }
  }
}

TEST_CASE("encoding speed: others on the same text, by bytes, tokens and way") {
  const test::TempFolder folder;
  const auto row = [](int bytes, int tokens, const char* way, const char* library) {
    return Json{{"bytes", bytes},
                {"tokens", tokens},
                {"way", way},
                {"library", library},
                {"warm_MB_per_s", 2.5}};
  };
  Json rows = Json::array();
  rows.push_back(row(10, 4, "encode, whole file", "same"));
  rows.push_back(row(10, 4, "encode, line by line", "another way"));
  rows.push_back(row(11, 4, "encode, whole file", "another text"));
  rows.push_back(row(10, 5, "encode, whole file", "another tokenizer"));
  const auto file = folder.write("speeds.json", Json{{"results", rows}}.dump()).string();
  const auto others =
      others_like({.way = "whole file", .bytes = 10, .tokens = 4}, read_speeds(file));
  REQUIRE(others.size() == 1);
  CHECK(others[0].library == "same");
  CHECK(others[0].fastest == 2.5);
  CHECK(others_like({.way = "whole file", .bytes = 10, .tokens = 4}, read_speeds("")).empty());
  folder.write("speeds.json", R"({"results": [{"bytes": 10}]})");
  CHECK(test::contains(test::error_of([&] { read_speeds(file); }),
                       "results: expected a list of rows"));
}

}  // namespace
}  // namespace fsdp::tools
