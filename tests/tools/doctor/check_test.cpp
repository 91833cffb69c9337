// Checks as texts between ranks, and as JSON.
// Requirements: S1.23.
#include "tools/doctor/check.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools::doctor {
namespace {

const std::vector<Check> kChecks = {
    {.name = "a b", .value = "1\n2", .state = State::kFail, .fix = "mend it", .number = 0.1},
    {.name = "c", .value = ""}};

TEST_CASE("checks: what travels as texts is what was said") {
  CHECK(from_texts(to_texts(kChecks)) == kChecks);
  CHECK(from_texts({}).empty());
  CHECK(test::error_of([] {
          from_texts({"a", "b"});
        }) == "[doctor] expected 5 texts for each check, got 2");
}

TEST_CASE("checks: as JSON, by host") {
  CHECK(to_json({{"n1", kChecks}, {"n2", {}}}).dump() ==
        R"({"hosts":[{"host":"n1","checks":[)"
        R"({"name":"a b","state":"fail","value":"1\n2","fix":"mend it"},)"
        R"({"name":"c","state":"ok","value":"","fix":""}]},{"host":"n2","checks":[]}]})");
  CHECK(to_json({}).dump() == R"({"hosts":[]})");
}

TEST_CASE("checks: of many hosts, few are named") {
  CHECK(few_of({"a"}) == "a");
  CHECK(few_of({"a", "b", "c", "d"}) == "a, b, c, d");
  CHECK(few_of({"a", "b", "c", "d", "e", "f"}) == "a, b, c, d and 2 more");
}

TEST_CASE("checks: one that failed on any host") {
  CHECK(any_failed({{"n1", {kChecks[1]}}, {"n2", kChecks}}));
  CHECK_FALSE(any_failed({{"n1", {kChecks[1]}}, {"n2", {}}}));
  CHECK_FALSE(any_failed({{"n1", {{.name = "a", .value = "", .state = State::kWarn}}}}));
  HostReport host = {"n1", kChecks};
  CHECK(host.find("c")->value.empty());
  CHECK(host.find("d") == nullptr);
}

}  // namespace
}  // namespace fsdp::tools::doctor
