// The table of one host, of two and of many.
// Requirements: S1.23.
#include "tools/doctor/table.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools::doctor {
namespace {

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

TEST_CASE("table: of 64 hosts, numbers have their ends and names are few") {
  std::vector<HostReport> hosts;
  for (int i = 0; i < 64; ++i) {
    hosts.push_back(
        {fmt::format("n{:02}", i),
         {{.name = "folder write", .value = fmt::format("{} MiB/s", 900 - i), .number = 900 - i},
          {.name = "CPU", .value = fmt::format("kind {}", i % 5)}}});
    if (i >= 32) hosts.back().checks.push_back(kBad);
  }
  CHECK(table(hosts) ==
        "✓ folder write   n63: 837 MiB/s ... n00: 900 MiB/s\n"
        "✓ CPU            n00: kind 0, and 4 other values\n"
        "✗ open files     n32, n33, n34, n35 and 28 more: 64\n"
        "\n"
        "✗ open files on n32, n33, n34, n35 and 28 more: 64\n"
        "    ulimit -n 65536\n"
        "\n"
        "64 hosts: 128 ✓  0 !  32 ✗\n");
}

TEST_CASE("table: of many hosts, what one line mends is one line") {
  std::vector<HostReport> hosts;
  for (int i = 0; i < 6; ++i) {
    hosts.push_back({fmt::format("n{}", i),
                     {{.name = "folder write",
                       .value = fmt::format("{} MiB/s", 9 - i),
                       .state = State::kWarn,
                       .fix = i == 2 ? "another line" : "a faster one",
                       .number = 9 - i}}});
  }
  CHECK(table(hosts) ==
        "! folder write   n0, n1, n3, n4 and 1 more: n5: 4 MiB/s ... n0: 9 MiB/s\n"
        "!                n2: 7 MiB/s\n"
        "\n"
        "! folder write on n0, n1, n3, n4 and 1 more: n5: 4 MiB/s ... n0: 9 MiB/s\n"
        "    a faster one\n"
        "! folder write on n2: 7 MiB/s\n"
        "    another line\n"
        "\n"
        "6 hosts: 0 ✓  6 !  0 ✗\n");
}

}  // namespace
}  // namespace fsdp::tools::doctor
