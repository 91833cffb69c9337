// Hosts that differ, and clocks that do.
// Requirements: S1.23.
#include <cmath>
#include <mutex>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/temp_folder.h"
#include "tools/doctor/checks.h"

namespace fsdp::tools::doctor {
namespace {

HostReport host_with(const std::string& host, const std::string& program, const std::string& nccl) {
  return {host, {{.name = "program", .value = program}, {.name = "NCCL", .value = nccl}}};
}

TEST_CASE("hosts: most are right; of two, the first") {
  std::vector<HostReport> hosts = {host_with("a", "old", "2.30.7"), host_with("b", "new", "2.27.3"),
                                   host_with("c", "new", "2.30.7")};
  compare_hosts(hosts, "/opt/my fsdp");
  CHECK(hosts[0].checks[0].state == State::kFail);
  CHECK(hosts[0].checks[0].fix == "scp b:'/opt/my fsdp' '/opt/my fsdp'");
  CHECK(hosts[0].checks[1].state == State::kOk);
  CHECK(hosts[1].checks[0].state == State::kOk);
  CHECK(hosts[1].checks[1].state == State::kFail);
  CHECK(hosts[1].checks[1].fix == "tools/setup.sh --cuda && make   # for 2.30.7 on this host, too");
  CHECK_FALSE(any_failed({hosts[2]}));
  hosts = {host_with("a", "x", "none"), host_with("b", "y", "none")};
  compare_hosts(hosts, "/fsdp");
  CHECK_FALSE(any_failed({hosts[0]}));
  CHECK(hosts[1].checks[0].fix == "scp a:/fsdp /fsdp");
}

TEST_CASE("hosts: a check that a host lacks, and what may differ") {
  std::vector<HostReport> hosts = {
      {"a", {{.name = "host", .value = "no answer", .state = State::kFail}}},
      host_with("b", "x", "none")};
  hosts[1].checks.push_back({.name = "memory", .value = "1 GiB"});
  hosts.push_back(host_with("c", "x", "none"));
  hosts[2].checks.push_back({.name = "memory", .value = "2 GiB"});
  compare_hosts(hosts, "/fsdp");
  CHECK_FALSE(any_failed({hosts[1], hosts[2]}));
  std::vector<HostReport> none;
  compare_hosts(none, "/fsdp");
}

TEST_CASE("clocks: only what is surely apart is wrong") {
  const Check near = clock_check({.seconds = -2e-4, .uncertainty = 1e-4}, "a");
  CHECK(near.state == State::kOk);
  CHECK(near.value == "-0.2 ms against a, within 0.1 ms");
  CHECK(near.number == 2e-4);
  CHECK(clock_check({.seconds = 1.2, .uncertainty = 0.3}, "a").state == State::kOk);
  const Check apart = clock_check({.seconds = 1.5, .uncertainty = 0.3}, "a");
  CHECK(apart.state == State::kWarn);
  CHECK(apart.value == "+1.5 s against a, within 300.0 ms");
  CHECK(apart.fix == "chronyc makestep   # without chrony: systemctl restart systemd-timesyncd");
  CHECK(clock_check({.seconds = -90, .uncertainty = 0.3}, "a").state == State::kFail);
}

TEST_CASE("expectations: a list of names and numbers") {
  const std::vector<Expectation> list = parse_expectations("gpus=8,nic_gbit=2.5");
  REQUIRE(list.size() == 2);
  CHECK(list[0].name == "gpus");
  CHECK(list[0].least == 8);
  CHECK(list[1].least == 2.5);
  CHECK(parse_expectations("").empty());
  CHECK(test::error_of([] { parse_expectations("gpu=8"); }) ==
        "expected one of " + expectation_names() + ", got \"gpu\"");
  CHECK(expectation_names().starts_with("gpus, ranks, hosts, "));
  for (const char* wrong :
       {"gpus", "gpus=", "gpus=x", "gpus=8x", "gpus=0", "gpus=-1", "gpus=nan"}) {
    CAPTURE(wrong);
    CHECK(test::error_of([&] {
            parse_expectations(wrong);
          }).starts_with("expected a number above 0 behind gpus="));
  }
}

TEST_CASE("expectations: an absence fails, a lower number fails, on each host that has it") {
  std::vector<HostReport> hosts = {
      {"a",
       {{.name = "GPUs", .value = "none: no driver", .number = 0},
        {.name = "open files",
         .value = "1024",
         .state = State::kWarn,
         .fix = "own",
         .number = 1024}}},
      {"b", {{.name = "GPUs", .value = "8 x GPU", .fix = "more of them", .number = 8}}}};
  demand(parse_expectations("gpus=8,open_files=2000,memory_gib=1"), hosts);
  CHECK(hosts[0].checks[0].state == State::kFail);
  CHECK(hosts[0].checks[0].value == "none: no driver; expected gpus=8");
  CHECK(hosts[0].checks[0].fix ==
        "srun --gpus-per-node=8 ...   # docker run --gpus all; nvidia-smi -L");
  CHECK(hosts[0].checks[1].state == State::kFail);
  CHECK(hosts[0].checks[1].fix == "own");
  CHECK(hosts[1].checks[0].state == State::kOk);
  CHECK(hosts[1].checks[0].fix.empty());
}

TEST_CASE("expectations: every name has a check that mends it in one line") {
  std::istringstream names(expectation_names());
  for (std::string name; names >> name;) {
    if (name.ends_with(',')) name.pop_back();
    CAPTURE(name);
    for (const char* check : {"GPUs", "ranks", "hosts", "CPU", "memory", "open files", "memlock",
                              "/dev/shm", "network", "NVLink", "NUMA", "folder write"}) {
      std::vector<HostReport> hosts = {{"a", {{.name = check, .value = "none"}}}};
      demand(parse_expectations(name + "=3"), hosts);
      const Check& demanded = hosts[0].checks[0];
      if (demanded.state == State::kOk) continue;
      CHECK_FALSE(demanded.fix.empty());
      CHECK(demanded.fix.find_first_of("{}\n") == std::string::npos);
    }
  }
}

TEST_CASE("clocks: the offset lies within the uncertainty, and the shortest exchange decides") {
  constexpr double kAhead = 0.25;
  std::vector<Stamps> own, other;
  for (const double trip : {0.4, 0.02, 0.1}) {
    const double begin = 1e9 + 10 * trip;
    other.push_back({.before = begin, .after = begin + trip});
    // Asked later, answered earlier.
    own.push_back({.before = kAhead + begin + trip / 4, .after = kAhead + begin + trip * 0.9});
  }
  const ClockOffset offset = clock_offset(own, other);
  CHECK(std::abs(offset.seconds - kAhead) <= offset.uncertainty);
  CHECK(offset.uncertainty < 0.02);
  const ClockOffset back = clock_offset(other, own);
  CHECK(back.seconds == doctest::Approx(-offset.seconds));
  CHECK(back.uncertainty == doctest::Approx(offset.uncertainty));
}

TEST_CASE("clocks: ranks of one host have one clock") {
  comm::run_local_ranks(3, [](comm::Communicator& world) {
    const auto stamps = stamp_exchanges(world, 4);
    REQUIRE(stamps.size() == 3);
    for (const std::vector<Stamps>& rank : stamps) {
      REQUIRE(rank.size() == 4);
      const ClockOffset offset = clock_offset(rank, stamps[0]);
      CHECK(std::abs(offset.seconds) <= offset.uncertainty + 1e-5);
      for (size_t i = 0; i < rank.size(); ++i) {
        const double both =
            rank[i].after - rank[i].before + stamps[0][i].after - stamps[0][i].before;
        CHECK(offset.uncertainty <= both / 2 + 1e-5);
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::tools::doctor
