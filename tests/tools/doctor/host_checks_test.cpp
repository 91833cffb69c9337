// A healthy host, and one fault after the other.
// Requirements: S1.23.
#include <algorithm>

#include <doctest/doctest.h>

#include "tools/doctor/checks.h"

namespace fsdp::tools::doctor {
namespace {

constexpr JobShape kTwoHosts = {.ranks = 2};
constexpr double kMiB = 1 << 20, kGiB = 1 << 30;

HostFacts healthy() {
  HostFacts facts;
  facts.cpu = {.name = "A CPU",
               .cores = 8,
               .of_host = 8,
               .governor = "performance",
               .most_khz = 3e6,
               .allowed_khz = 3e6};
  facts.numa_nodes = 2;
  facts.memory = {.bytes = size_t{64} << 30, .source = "RAM"};
  facts.open_files = {.soft = 1024, .hard = 4096};
  facts.locked_memory = {.soft = 8 * kMiB, .hard = 8 * kMiB};
  facts.shared_memory = Space{.size = 32 * kGiB, .free = 31 * kGiB};
  facts.cards = {{.name = "eth0", .up = true, .gbit = 25}};
  return facts;
}

// The one check that is not well.
Check only_fault(const HostFacts& facts, const JobShape& job = {}) {
  std::vector<Check> faults = host_checks(facts, job);
  std::erase_if(faults, [](const Check& check) { return check.state == State::kOk; });
  REQUIRE(faults.size() == 1);
  return faults[0];
}

std::string value_of(const HostFacts& facts, std::string_view name, const JobShape& job = {}) {
  const std::vector<Check> checks = host_checks(facts, job);
  return std::ranges::find(checks, name, &Check::name)->value;
}

TEST_CASE("a healthy host: nothing is wrong, and nothing is to be mended") {
  for (const Check& check : host_checks(healthy(), {.ranks = 8, .on_host = 8, .gpus = 8})) {
    CAPTURE(check.name);
    CHECK(check.state == State::kOk);
    CHECK(check.fix.empty());
    CHECK_FALSE(check.value.empty());
  }
  CHECK(value_of(healthy(), "CPU") == "A CPU, 8 of 8 cores");
  CHECK(value_of(healthy(), "memory") == "64.00 GiB (RAM)");
  CHECK(value_of(healthy(), "control group") == "no limit of CPUs and threads");
  CHECK(value_of(healthy(), "network") == "eth0 25 Gbit/s");
  CHECK(value_of(healthy(), "RDMA") == "none");
}

TEST_CASE("ulimit -v and ulimit -u") {
  HostFacts facts = healthy();
  facts.addresses = {.soft = 16 * kGiB, .hard = kNoLimit};
  CHECK(only_fault(facts).state == State::kWarn);
  CHECK(only_fault(facts, {.gpus = 1}).state == State::kFail);
  CHECK(only_fault(facts).fix == "ulimit -v unlimited");
  CHECK(value_of(facts, "addresses") == "16.00 GiB of each rank");
  facts = healthy();
  facts.processes = {.soft = 100, .hard = 4096};
  CHECK(value_of(facts, "processes") == "100 of this user");
  const JobShape eight = {.ranks = 8, .on_host = 8};
  CHECK(only_fault(facts, eight).state == State::kFail);
  CHECK(only_fault(facts, eight).value == "100 of this user; 264 for 8 ranks");
  CHECK(only_fault(facts, eight).fix == "ulimit -u 264");
}

TEST_CASE("open files: enough for the ranks of all hosts, as far as the hard limit allows") {
  HostFacts facts = healthy();
  facts.open_files = {.soft = 256, .hard = 1 << 20};
  CHECK(only_fault(facts) == Check{.name = "open files",
                                   .value = "256; 258 for 1 rank",
                                   .state = State::kFail,
                                   .fix = "ulimit -n 65536",
                                   .number = 256});
  facts.open_files = {.soft = 256, .hard = 4096};
  CHECK(only_fault(facts).fix == "ulimit -n $(ulimit -Hn)");
  facts.open_files = {.soft = 256, .hard = 256};
  CHECK(only_fault(facts).fix ==
        "echo '* - nofile 65536' >>/etc/security/limits.d/90-fsdp.conf   # as root; then log in "
        "again");
  facts.open_files = {.soft = 1024, .hard = 1 << 20};
  const Check of_nccl = only_fault(facts, {.ranks = 16, .on_host = 8, .gpus = 8});
  CHECK(of_nccl.state == State::kWarn);
  CHECK(of_nccl.value == "1024; 1312 for 16 ranks with NCCL");
  CHECK(only_fault(facts, {.ranks = 400, .on_host = 8, .gpus = 8}).state == State::kFail);
  CHECK(value_of(facts, "open files", {.ranks = 8, .on_host = 8, .gpus = 8}) == "1024");
  facts.open_files = {};
  CHECK(value_of(facts, "open files") == "unlimited");
}

TEST_CASE("memlock: RDMA between hosts needs all of it, others Linux's own") {
  HostFacts facts = healthy();
  facts.locked_memory = {.soft = 65536, .hard = 65536};
  const Check little = only_fault(facts);
  CHECK(little.state == State::kWarn);
  CHECK(little.value == "65536 bytes, less than Linux's own 8.00 MiB");
  CHECK(little.fix ==
        "echo '* - memlock unlimited' >>/etc/security/limits.d/90-fsdp.conf   # as root; then log "
        "in again");
  facts.locked_memory.hard = kNoLimit;
  CHECK(only_fault(facts).fix == "ulimit -l unlimited");
  facts = healthy();
  facts.rdma_ports = {{.name = "mlx5_0 port 1", .up = true, .gbit = 200, .state = "ACTIVE"}};
  facts.rdma_ports.insert(facts.rdma_ports.begin(), {.name = "mlx5_1 port 1", .state = "DOWN"});
  CHECK(only_fault(facts, kTwoHosts).state == State::kFail);
  CHECK(only_fault(facts, kTwoHosts).value == "8.00 MiB, mlx5_0 port 1 locks what it sends");
  CHECK(only_fault(facts).state == State::kWarn);  // one host sends nothing
  facts.locked_memory = {};
  CHECK(value_of(facts, "memlock") == "unlimited");
  CHECK(value_of(facts, "RDMA") == "mlx5_1 port 1 DOWN, mlx5_0 port 1 200 Gbit/s");
}

TEST_CASE("/dev/shm: what Open MPI maps, what NCCL may want") {
  HostFacts facts = healthy();
  facts.shared_memory = Space{.size = 64 * kMiB, .free = 16 * kMiB};
  CHECK(value_of(facts, "/dev/shm", {.ranks = 4, .on_host = 4}) == "64.00 MiB, 16.00 MiB free");
  const Check small = only_fault(facts, {.ranks = 5, .on_host = 5});
  CHECK(small.state == State::kFail);
  CHECK(small.value == "64.00 MiB, 16.00 MiB free; Open MPI maps 20.00 MiB for 5 ranks");
  CHECK(small.fix == "mount -o remount,size=1024M /dev/shm   # docker run --shm-size=1024m");
  const Check gpus = only_fault(facts, {.ranks = 2, .on_host = 2, .gpus = 2});
  CHECK(gpus.state == State::kWarn);
  CHECK(gpus.value == "64.00 MiB, 16.00 MiB free; NCCL may want 1.00 GiB");
  CHECK(gpus.fix == "mount -o remount,size=4096M /dev/shm   # docker run --shm-size=4096m");
  facts.shared_memory.reset();
  CHECK(only_fault(facts).fix == "mount -t tmpfs tmpfs /dev/shm");
}

TEST_CASE("processors: governed, limited, shared") {
  HostFacts facts = healthy();
  facts.cpu.governor = "powersave";
  CHECK(only_fault(facts).fix == "cpupower frequency-set -g performance");
  facts = healthy();
  facts.cpu.allowed_khz = 1.2e6;
  CHECK(only_fault(facts).value == "performance, at most 1.2 of 3.0 GHz");
  CHECK(only_fault(facts).fix == "cpupower frequency-set -u 3000000");
  facts = healthy();
  CHECK(only_fault(facts, {.ranks = 9, .on_host = 9}).value ==
        "A CPU, 8 of 8 cores; 9 ranks run here");
  facts.quota = {.cpus = 1.5, .source = "cpu.max of the control group /a"};
  CHECK(value_of(facts, "control group") == "1.5 CPUs (cpu.max of the control group /a)");
  const Check quota = only_fault(facts, {.ranks = 2, .on_host = 2});
  CHECK(quota.state == State::kWarn);
  CHECK(quota.value == "1.5 CPUs (cpu.max of the control group /a) for 2 ranks");
  facts = healthy();
  facts.threads_left = 30;
  CHECK(only_fault(facts).state == State::kFail);
  CHECK(only_fault(facts).value == "30 more threads, 40 for 1 rank");
}

TEST_CASE("network: cards that are down, ports that nobody manages") {
  HostFacts facts = healthy();
  facts.cards = {{.name = "eth0"}, {.name = "eth1"}};
  CHECK(only_fault(facts).value == "no card is up");
  CHECK(only_fault(facts).fix == "ip link set eth0 up");
  facts = healthy();
  facts.locked_memory = {};
  facts.rdma_ports = {{.name = "mlx5_0 port 1", .state = "INIT"}};
  CHECK(only_fault(facts).value == "mlx5_0 port 1 INIT; no subnet manager answers");
  CHECK(only_fault(facts).state == State::kWarn);  // on one host nobody needs it
  CHECK(only_fault(facts, kTwoHosts).state == State::kFail);
  facts.rdma_ports.push_back({.name = "mlx5_1 port 1", .up = true, .state = "ACTIVE"});
  CHECK(only_fault(facts, kTwoHosts).state == State::kWarn);
  facts.rdma_ports.pop_back();
  facts.rdma_ports[0].state = "DOWN";
  CHECK(only_fault(facts).value == "mlx5_0 port 1 DOWN; no port is active");
  CHECK(only_fault(facts).state == State::kWarn);
  CHECK(only_fault(facts, kTwoHosts).state == State::kFail);
  facts.locked_memory = {.soft = 8 * kMiB, .hard = 8 * kMiB};
  CHECK(only_fault(facts).name == "RDMA");  // a port that is down locks nothing
  facts.rdma_ports.push_back({.name = "mlx5_1 port 1", .up = true, .gbit = 100, .state = "ACTIVE"});
  CHECK(value_of(facts, "RDMA") == "mlx5_0 port 1 DOWN, mlx5_1 port 1 100 Gbit/s");
  const std::vector<Check> checks = host_checks(facts, {});
  CHECK(std::ranges::find(checks, "network", &Check::name)->number == 100);
}

}  // namespace
}  // namespace fsdp::tools::doctor
