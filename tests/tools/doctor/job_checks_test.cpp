// Hosts that differ, and clocks that do.
// Requirements: S1.23.
#include "tools/doctor/job_checks.h"

#include <doctest/doctest.h>

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

}  // namespace
}  // namespace fsdp::tools::doctor
