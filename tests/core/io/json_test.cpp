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
  Json value;
  value["z"] = 1;
  value["a"] = "cut \xe6\x97";
  write_json_file(folder / "x.json", value);
  CHECK(read_file(folder / "x.json") == "{\n  \"z\": 1,\n  \"a\": \"cut \\udce6\\udc97\"\n}\n");
}

TEST_CASE("braces make an object of pairs that begin with a string, else an array") {
  CHECK(Json{{"a", 1}, {"b", {1, 2}}}.dump() == R"({"a":1,"b":[1,2]})");
  CHECK(Json{{"a", 1}, {2, 3}}.dump() == R"([["a",1],[2,3]])");
  CHECK(Json(std::vector<int64_t>{3, -1}).dump() == "[3,-1]");
  CHECK(Json(std::map<std::string, double>{{"z", 0.5}, {"a", 1}}).dump() == R"({"a":1.0,"z":0.5})");
  CHECK(Json().dump() == "null");
  CHECK(Json::array().dump() == "[]");
  CHECK(Json::object().dump() == "{}");
  CHECK(Json("\"\n").dump() == R"("\"\n")");
}

TEST_CASE("keys keep their order unless a text is parsed strictly; equality is without order") {
  const Json kept = Json::parse(R"({"b": 1, "a": 2})");
  CHECK(kept.dump() == R"({"b":1,"a":2})");
  CHECK(parse_json(kept.dump(), "x").dump() == R"({"a":2,"b":1})");
  CHECK(kept == parse_json(kept.dump(), "x"));
  CHECK(kept != Json{{"a", 2}, {"b", 2}});
  CHECK(kept != Json{{"a", 2}});
}

TEST_CASE("a key is found whatever the order, also after changes") {
  Json value = Json::object();
  for (const char* key : {"m", "z", "a", "q"}) value[key] = key;
  for (const char* key : {"m", "z", "a", "q"}) CHECK(value.at(key) == key);
  CHECK(value.erase("z") == 1);
  CHECK(value.erase("z") == 0);
  CHECK(!value.contains("z"));
  value.update({{"a", 1}, {"b", 2}});
  CHECK(value.dump() == R"({"m":"m","a":1,"q":"q","b":2})");
  CHECK(value.find("b")->get<int>() == 2);
  CHECK(value.value("none", 7) == 7);
  std::string values;
  for (const Json& each : value) values += each.dump();
  CHECK(values == R"("m"1"q"2)");
}

TEST_CASE("a member that is added moves no other") {
  Json json = Json::object();
  json["first"] = "a text that is too long to lie within the value itself";
  const Json& first = json["first"];
  for (int i = 0; i < 1000; ++i) json[std::to_string(i)] = json["first"];
  CHECK(&first == &json["first"]);
  CHECK(json["999"] == first);
}

TEST_CASE("numbers: equal by value, natural ones are told apart, and they are converted") {
  const Json big = Json::parse("18446744073709551615"), minus = Json::parse("-1");
  CHECK(big.is_number_unsigned());
  CHECK(!minus.is_number_unsigned());
  CHECK(big.get<uint64_t>() == UINT64_MAX);
  CHECK(big != minus);
  CHECK(Json(3) == Json(3.0));
  CHECK(Json(3u) == 3);
  CHECK(Json(2.75).get<int>() == 2);
  CHECK(Json::parse("1e3").is_number_float());
  CHECK(Json(0.1).dump() == "0.1");
  CHECK(Json(5).get<double>() == 5);
  CHECK(Json::parse("[1, 2]").get<std::vector<int>>() == std::vector<int>{1, 2});
}

TEST_CASE("what is not there, or of another kind, is an error that says so") {
  const Json value = Json::parse(R"({"a": [1, {"b": null}]})");
  const auto refused = [](auto&& use) -> std::string {
    try {
      use();
    } catch (const JsonError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refused([&] { value.at("x"); }) == "key 'x' not found");
  CHECK(refused([&] { value["a"][2].dump(); }) == "array index 2 is out of range");
  CHECK(refused([&] { value["a"].get<int>(); }) == "type must be number, but is array");
  CHECK(refused([&] { value["a"][0].text(); }) == "type must be string, but is number");
  CHECK(refused([&] { Json(1).at("a"); }) == "type must be object, but is number");
  CHECK(refused([] { Json::parse("[1"); }).starts_with("malformed JSON: "));
  CHECK(Json("\xff").dump() == "\"\\udcff\"");
  CHECK(value.follow("/a/1/b")->is_null());
  CHECK(value.follow("/a/2") == nullptr);
  CHECK(value.follow("/x/y") == nullptr);
}

}  // namespace
}  // namespace fsdp
