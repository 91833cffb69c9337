// Keys that are there, null or absent, of the wrong kind, in two spellings; and which nobody asked
// for. Which keys a model's family reads: tests/models/family_keys_test.cpp.
#include "core/io/config_keys.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

using test::error_of;
using Ids = std::vector<int64_t>;

TEST_CASE("config keys: absent, null, and of another kind") {
  const Json json = {
      {"n", 3}, {"none", nullptr}, {"half", 2.5}, {"on", true}, {"large", 1LL << 31}};
  const ConfigKeys keys(json, "F");
  CHECK(keys.has("n"));
  CHECK(!keys.has("none"));
  CHECK(!keys.absent("none"));
  CHECK(keys.absent("other"));
  CHECK(keys.get<int64_t>("n") == 3);
  CHECK(keys.get<double>("n") == 3);
  CHECK(keys.get_or<int64_t>("none", 7) == 7);
  CHECK(keys.extent("other", 7) == 7);
  CHECK(error_of([&] { keys.extent("none", 7); }) ==
        "F: none: expected an integer of at most 32 bits, got null");
  CHECK(error_of([&] { keys.get<int64_t>("none"); }) == "F: none: missing");
  for (const char* key : {"half", "on", "large"}) {  // no number is made to fit
    CHECK(error_of([&] { keys.get<int64_t>(key); }) ==
          fmt::format("F: {}: expected an integer of at most 32 bits, got {}", key,
                      json[key].dump()));
  }
  CHECK(error_of([&] { keys.get<bool>("n"); }) == "F: n: expected true or false, got 3");
  CHECK(error_of([&] { keys.get<std::string>("n"); }) == "F: n: expected a string, got 3");
  CHECK(error_of([&] { ConfigKeys(Json{1, 2}, "F"); }) == "F: expected a JSON object");
}

TEST_CASE("config keys: two spellings must not contradict each other") {
  const Json json = {{"layers", 3}, {"n_layer", 3}, {"wide", 4}, {"width", 5}};
  const ConfigKeys keys(json, "F");
  CHECK(keys.either("layers", "n_layer", 9) == 3);
  CHECK(keys.either("layers", "other", 9) == 3);
  CHECK(keys.either("other", "n_layer", 9) == 3);
  CHECK(keys.either("other", "another", 9) == 9);
  CHECK(error_of([&] { keys.either("wide", "width", 9); }) == "F: wide: 4, but width says 5");
}

TEST_CASE("config keys: one token id or several, lists of strings, and objects below a key") {
  const Json json = {
      {"one", 3},    {"list", {5, 4}},      {"none", nullptr},
      {"text", "a"}, {"names", {"a", "b"}}, {"below", {{"inner", 1}, {"deep", {{"er", 2}}}}}};
  const ConfigKeys keys(json, "F");
  CHECK(keys.tokens("one") == Ids{3});
  CHECK(keys.tokens("list") == Ids{5, 4});
  CHECK(keys.tokens("none").empty());
  CHECK(keys.token("list") == 5);
  CHECK(keys.token("none", 8) == -1);
  CHECK(keys.token("other", 8) == 8);
  CHECK(error_of([&] { keys.tokens("text"); }) ==
        "F: text: expected token ids of at most 32 bits, one or a list, got \"a\"");
  CHECK(keys.strings("names") == std::vector<std::string>{"a", "b"});
  CHECK(keys.strings("none").empty());
  CHECK(error_of([&] { keys.strings("text"); }) == "F: text: expected a list, got \"a\"");
  CHECK(error_of([&] { keys.strings("list"); }) == "F: list: expected strings, got 5");
  const ConfigKeys below = keys.object("below");
  CHECK(below.get<int64_t>("inner") == 1);
  CHECK(error_of([&] { below.get<std::string>("inner"); }) ==
        "F: below: inner: expected a string, got 1");
  CHECK(error_of([&] { below.refuse_objects(); }) ==
        "F: below: deep: values by layer type are not supported by this build");
  CHECK(error_of([&] { keys.refuse_unless(false, "one", "3"); }) ==
        "F: one: 3 is not supported by this build");
}

TEST_CASE("config keys: what nobody has asked for is known") {
  const Json json = {{"a", 1}, {"b", 2}, {"c", nullptr}};
  const ConfigKeys keys(json, "F");
  keys.get_or<int64_t>("b", 0);
  keys.has("other");
  CHECK(keys.unasked() == std::vector<std::string>{"a", "c"});
  keys.absent("c");
  CHECK(keys.unasked() == std::vector<std::string>{"a"});
  const Json outer = {{"in", {{"a", 1}, {"b", 2}, {"c", 3}}}, {"shut", {{"d", 4}}}};
  const ConfigKeys all(outer, "F");
  all.has("in");
  all.has("shut");
  all.object("in").has("a");
  all.object("in").has("b");
  CHECK(all.unasked() == std::vector<std::string>{"in.c"});
}

}  // namespace
}  // namespace fsdp
