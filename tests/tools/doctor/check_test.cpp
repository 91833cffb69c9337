// Checks as texts between ranks, and as JSON.
// Requirements: S1.23.
#include "tools/doctor/check.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

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

const Check kGood = {.name = "GPUs", .value = "none"};
const Check kBad = {
    .name = "open files", .value = "64", .state = State::kFail, .fix = "ulimit -n 65536"};
const Check kSlow = {
    .name = "CPU governor", .value = "powersave", .state = State::kWarn, .fix = "cpupower"};

TEST_CASE("table: one host") {
  CHECK(table({{"a", {kGood, kBad, kSlow}}}) ==
        "✓ GPUs           none\n"
        "✗ open files     64\n"
        "! CPU governor   powersave\n"
        "\n"
        "✗ open files: 64\n"
        "    ulimit -n 65536\n"
        "! CPU governor: powersave\n"
        "    cpupower\n"
        "\n"
        "1 host: 1 ✓  1 !  1 ✗\n");
  CHECK(table({{"a", {kGood}}}) == "✓ GPUs           none\n\n1 host: 1 ✓  0 !  0 ✗\n");
}

TEST_CASE("table: hosts that differ have a line each, the worst first") {
  CHECK(table({{"a", {kGood, {.name = "open files", .value = "1024"}}}, {"b", {kGood, kBad}}}) ==
        "✓ GPUs           none\n"
        "✗ open files     b: 64\n"
        "✓                a: 1024\n"
        "\n"
        "✗ open files on b: 64\n"
        "    ulimit -n 65536\n"
        "\n"
        "2 hosts: 3 ✓  0 !  1 ✗\n");
}

TEST_CASE("table: of 64 hosts with a value each, three of each state are shown, the worst first") {
  std::vector<HostReport> hosts;
  for (int i = 0; i < 64; ++i) {
    hosts.push_back({fmt::format("n{:02}", i),
                     {{.name = "folder write", .value = fmt::format("{} MiB/s", 100 - i)},
                      {.name = "CPU", .value = fmt::format("kind {}", i % 4)}}});
    if (i >= 60) hosts.back().checks[0].state = State::kWarn;
    if (i >= 60) hosts.back().checks[0].fix = "a faster one";
    if (i >= 32) hosts.back().checks.push_back(kBad);
  }
  CHECK(table(hosts) ==
        "! folder write   n60: 40 MiB/s\n"
        "!                n61: 39 MiB/s\n"
        "!                n62: 38 MiB/s\n"
        "!                n63: 37 MiB/s\n"
        "✓                n00: 100 MiB/s\n"
        "✓                n01: 99 MiB/s\n"
        "✓                n02: 98 MiB/s\n"
        "✓                n03, n04, n05, n06 and 53 more: 57 more values\n"
        "✓ CPU            n00, n04, n08, n12 and 12 more: kind 0\n"
        "✓                n01, n05, n09, n13 and 12 more: kind 1\n"
        "✓                n02, n06, n10, n14 and 12 more: kind 2\n"
        "✓                n03, n07, n11, n15 and 12 more: kind 3\n"
        "✗ open files     n32, n33, n34, n35 and 28 more: 64\n"
        "\n"
        "! folder write on n60: 40 MiB/s\n"
        "    a faster one\n"
        "! folder write on n61: 39 MiB/s\n"
        "    a faster one\n"
        "! folder write on n62: 38 MiB/s\n"
        "    a faster one\n"
        "! folder write on n63: 37 MiB/s\n"
        "    a faster one\n"
        "✗ open files on n32, n33, n34, n35 and 28 more: 64\n"
        "    ulimit -n 65536\n"
        "\n"
        "64 hosts: 124 ✓  4 !  32 ✗\n");
}

}  // namespace
}  // namespace fsdp::tools::doctor
