// What Python writes and reads although JSON has it not. And that the rest stays strict.
#include "tools/data/tokenizer/python_json.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

struct File {
  test::TempFolder folder;

  Json read(const std::string& text) {
    folder.write("keys.json", text);
    return read_python_json(folder / "keys.json");
  }
  std::string error(const std::string& text) {
    return test::error_of([&] { read(text); });
  }
};

TEST_CASE_FIXTURE(File, "python json: numbers that are none") {
  const Json keys = read(R"({"a": Infinity, "b": [NaN,-Infinity], "c": "NaN \" Infinity"})");
  CHECK(keys.at("a").get<double>() > 1e300);
  CHECK(keys.at("b")[0].is_number());
  CHECK(keys.at("b")[1].get<double>() < -1e300);
  CHECK(keys.at("c").text() == "NaN \" Infinity");
}

TEST_CASE_FIXTURE(File, "python json: the last value of a key counts, in the place of the first") {
  CHECK(read(R"({"b": 1, "a": {"x": 1, "x": 2}, "b": 3})").dump() == R"({"b":3,"a":{"x":2}})");
  CHECK(read(R"([{"b": 1, "b": 2}])").dump() == R"([{"b":2}])");
}

TEST_CASE_FIXTURE(File, "python json: everything else is strict") {
  CHECK(test::contains(error("{\n\"a\": NaN,\n}"), "keys.json:3: malformed JSON"));
  CHECK(test::contains(error(R"({"a": 1Infinity})"), "keys.json:1: malformed JSON"));
  CHECK(test::contains(error(R"({"a": nan})"), "keys.json:1: malformed JSON"));
  CHECK(test::contains(error(std::string(70, '[')), "nested more than 64 levels deep"));
}

}  // namespace
}  // namespace fsdp::data
