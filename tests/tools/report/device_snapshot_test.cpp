// A line for each GPU, or for each host; and one of each rank.
// Requirements: S0.9, S2.13.
#include "tools/report/device_snapshot.h"

#include <regex>

#include <doctest/doctest.h>
#include <unistd.h>

#include "comm/local_transport.h"
#include "tools/launch/backend_choice.h"

namespace fsdp::tools {
namespace {

constexpr double kGiB = 1 << 30;

TEST_CASE("device snapshot: a GPU, as far as it is known, and a host") {
  CHECK(describe_gpu("NVIDIA H100",
                     {.utilisation = 3, .memory_used = 0.5 * kGiB, .memory_total = 80 * kGiB}) ==
        "NVIDIA H100, 0.5 of 80.0 GiB in use, 3 % busy");
  CHECK(describe_gpu("NVIDIA H100", {}) == "NVIDIA H100");
  const HostCounters counters = {.memory_used = 3.0625 * kGiB, .memory_total = 16 * kGiB};
  CHECK(describe_cpu("A CPU @ 3 GHz", 8, counters) ==
        "A CPU @ 3 GHz, 8 cores, 3.1 of 16.0 GiB of RAM in use");
  CHECK(describe_cpu("A CPU", 1, counters) == "A CPU, 1 core, 3.1 of 16.0 GiB of RAM in use");
}

TEST_CASE("device snapshot: the ranks of a host that compute on its CPU have one line") {
  // Made before the threads: std::regex writes into a cache that they share.
  const std::regex expected(R"(, \d+ cores?, \d+\.\d of \d+\.\d GiB of RAM in use$)");
  comm::run_local_ranks(3, [&](comm::Communicator& world) {
    const std::vector<std::string> lines = device_snapshot(world, std::nullopt);
    REQUIRE(lines.size() == 1);
    CAPTURE(lines[0]);
    CHECK(lines[0].starts_with(host_name() + ": " + cpu_name() + ", "));
    CHECK(std::regex_search(lines[0], expected));
  });
}

TEST_CASE("device snapshot: a rank says where it runs and as which process") {
  const std::string process = fmt::format(", process {}", ::getpid());
  CHECK(describe_rank(3, std::nullopt, 2) ==
        fmt::format("rank 3 on {}: CPU, 2 threads{}", host_name(), process));
  CHECK(describe_rank(1, std::nullopt, 1) ==
        fmt::format("rank 1 on {}: CPU, 1 thread{}", host_name(), process));
  CHECK(describe_rank(1, 5, 1) == fmt::format("rank 1 on {}: GPU 5{}", host_name(), process));
}

}  // namespace
}  // namespace fsdp::tools
