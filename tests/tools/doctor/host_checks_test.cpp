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

// The only fault; "" for a value or a fix that another line checks.
void check_fault(const HostFacts& facts, const JobShape& job, State state, const char* value,
                 const char* fix = "") {
  const Check fault = only_fault(facts, job);
  CAPTURE(fault.value);
  CAPTURE(fault.fix);
  CHECK(fault.state == state);
  CHECK((*value == 0 || fault.value == value));
  CHECK((*fix == 0 || fault.fix == fix));
}

HostFacts changed(void (*change)(HostFacts& facts)) {
  HostFacts facts = healthy();
  change(facts);
  return facts;
}

TEST_CASE("ulimit -v and ulimit -u") {
  const HostFacts few =
      changed([](auto& f) { f.addresses = {.soft = 16 * kGiB, .hard = kNoLimit}; });
  check_fault(few, {}, State::kWarn, "16.00 GiB of each rank", "ulimit -v unlimited");
  check_fault(few, {.gpus = 1}, State::kFail,
              "16.00 GiB; CUDA reserves more addresses than the host has memory");
  const HostFacts users = changed([](auto& f) { f.processes = {.soft = 100, .hard = 4096}; });
  CHECK(value_of(users, "processes") == "100 of this user");
  check_fault(users, {.ranks = 8, .on_host = 8}, State::kFail, "100 of this user; 264 for 8 ranks",
              "ulimit -u 264");
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
  check_fault(facts, {}, State::kFail, "", "ulimit -n $(ulimit -Hn)");
  facts.open_files = {.soft = 256, .hard = 256};
  check_fault(facts, {}, State::kFail, "",
              "echo '* - nofile 65536' >>/etc/security/limits.d/90-fsdp.conf   # as root; then log "
              "in again");
  facts.open_files = {.soft = 1024, .hard = 1 << 20};
  check_fault(facts, {.ranks = 16, .on_host = 8, .gpus = 8}, State::kWarn,
              "1024; 1312 for 16 ranks with NCCL");
  check_fault(facts, {.ranks = 400, .on_host = 8, .gpus = 8}, State::kFail, "");
  CHECK(value_of(facts, "open files", {.ranks = 8, .on_host = 8, .gpus = 8}) == "1024");
  facts.open_files = {};
  CHECK(value_of(facts, "open files") == "unlimited");
}

TEST_CASE("memlock: RDMA between hosts needs all of it, others Linux's own") {
  HostFacts facts = healthy();
  facts.locked_memory = {.soft = 65536, .hard = 65536};
  check_fault(facts, {}, State::kWarn, "65536 bytes, less than Linux's own 8.00 MiB",
              "echo '* - memlock unlimited' >>/etc/security/limits.d/90-fsdp.conf   # as root; "
              "then log in again");
  facts.locked_memory.hard = kNoLimit;
  check_fault(facts, {}, State::kWarn, "", "ulimit -l unlimited");
  facts = healthy();
  facts.rdma_ports = {{.name = "mlx5_1 port 1", .state = "DOWN"},
                      {.name = "mlx5_0 port 1", .up = true, .gbit = 200, .state = "ACTIVE"}};
  check_fault(facts, kTwoHosts, State::kFail, "8.00 MiB, mlx5_0 port 1 locks what it sends");
  check_fault(facts, {}, State::kWarn, "");  // one host sends nothing
  facts.locked_memory = {};
  CHECK(value_of(facts, "memlock") == "unlimited");
  CHECK(value_of(facts, "RDMA") == "mlx5_1 port 1 DOWN, mlx5_0 port 1 200 Gbit/s");
}

TEST_CASE("/dev/shm: what Open MPI maps, what NCCL may want") {
  HostFacts facts = healthy();
  facts.shared_memory = Space{.size = 64 * kMiB, .free = 16 * kMiB};
  CHECK(value_of(facts, "/dev/shm", {.ranks = 4, .on_host = 4}) == "64.00 MiB, 16.00 MiB free");
  check_fault(facts, {.ranks = 5, .on_host = 5}, State::kFail,
              "64.00 MiB, 16.00 MiB free; Open MPI maps 20.00 MiB for 5 ranks",
              "mount -o remount,size=1024M /dev/shm   # docker run --shm-size=1024m");
  check_fault(facts, {.ranks = 2, .on_host = 2, .gpus = 2}, State::kWarn,
              "64.00 MiB, 16.00 MiB free; NCCL may want 1.00 GiB",
              "mount -o remount,size=4096M /dev/shm   # docker run --shm-size=4096m");
  facts.shared_memory.reset();
  check_fault(facts, {}, State::kWarn, "none", "mount -t tmpfs tmpfs /dev/shm");
}

TEST_CASE("processors: governed, limited, shared") {
  check_fault(changed([](auto& f) { f.cpu.governor = "powersave"; }), {}, State::kWarn, "",
              "cpupower frequency-set -g performance");
  check_fault(changed([](auto& f) { f.cpu.allowed_khz = 1.2e6; }), {}, State::kWarn,
              "performance, at most 1.2 of 3.0 GHz", "cpupower frequency-set -u 3000000");
  check_fault(healthy(), {.ranks = 9, .on_host = 9}, State::kWarn,
              "A CPU, 8 of 8 cores; 9 ranks run here");
  const HostFacts quota = changed(
      [](auto& f) { f.quota = {.cpus = 1.5, .source = "cpu.max of the control group /a"}; });
  CHECK(value_of(quota, "control group") == "1.5 CPUs (cpu.max of the control group /a)");
  check_fault(quota, {.ranks = 2, .on_host = 2}, State::kWarn,
              "1.5 CPUs (cpu.max of the control group /a) for 2 ranks");
  check_fault(changed([](auto& f) { f.threads_left = 30; }), {}, State::kFail,
              "30 more threads, 40 for 1 rank");
}

TEST_CASE("network: cards that are down, ports that nobody manages") {
  check_fault(changed([](auto& f) {
                f.cards = {{.name = "eth0"}, {.name = "eth1"}};
              }),
              {}, State::kWarn, "no card is up", "ip link set eth0 up");
  HostFacts facts = healthy();
  facts.locked_memory = {};
  facts.rdma_ports = {{.name = "mlx5_0 port 1", .state = "INIT"}};
  // On one host nobody needs it.
  check_fault(facts, {}, State::kWarn, "mlx5_0 port 1 INIT; no subnet manager answers");
  check_fault(facts, kTwoHosts, State::kFail, "");
  facts.rdma_ports.push_back({.name = "mlx5_1 port 1", .up = true, .state = "ACTIVE"});
  check_fault(facts, kTwoHosts, State::kWarn, "");
  facts.rdma_ports.pop_back();
  facts.rdma_ports[0].state = "DOWN";
  check_fault(facts, {}, State::kWarn, "mlx5_0 port 1 DOWN; no port is active");
  check_fault(facts, kTwoHosts, State::kFail, "");
  facts.locked_memory = {.soft = 8 * kMiB, .hard = 8 * kMiB};
  CHECK(only_fault(facts).name == "RDMA");  // a port that is down locks nothing
  facts.rdma_ports.push_back({.name = "mlx5_1 port 1", .up = true, .gbit = 100, .state = "ACTIVE"});
  CHECK(value_of(facts, "RDMA") == "mlx5_0 port 1 DOWN, mlx5_1 port 1 100 Gbit/s");
  const std::vector<Check> checks = host_checks(facts, {});
  CHECK(std::ranges::find(checks, "network", &Check::name)->number == 100);
}

}  // namespace
}  // namespace fsdp::tools::doctor
