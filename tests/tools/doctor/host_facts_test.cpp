// Readers of /proc and /sys, on folders as machines have them.
// Requirements: S1.23.
#include "tools/doctor/host_facts.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools::doctor {
namespace {

void write(const test::TempFolder& root, const std::string& path, const std::string& text) {
  std::filesystem::create_directories((root / path).parent_path());
  root.write(path, text);
}

TEST_CASE("host facts: a host that says nothing has no limits") {
  const test::TempFolder root;
  const HostFacts facts = read_host_facts(root.path());
  CHECK(facts.open_files.soft == kNoLimit);
  CHECK(facts.locked_memory.hard == kNoLimit);
  CHECK(facts.threads_left == kNoLimit);
  CHECK_FALSE(facts.shared_memory);
  CHECK(facts.cards.empty());
  CHECK(facts.rdma_ports.empty());
  CHECK(facts.cpu.governor.empty());
  CHECK(facts.cpu.cores >= 1);
  CHECK(facts.cpu.of_host >= facts.cpu.cores);
  CHECK(facts.numa_nodes == 0);
  CHECK(numa_node(root.path(), "0000:3b:00.0") == -1);
  CHECK(first_line(root / "nothing").empty());
}

TEST_CASE("host facts: limits of the process, and of its control groups") {
  const test::TempFolder root;
  write(root, "proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max open files            1024                 4096                 files     \n"
        "Max locked memory         65536                unlimited            bytes     \n");
  write(root, "proc/self/cgroup", "0::/a\n");
  write(root, "sys/fs/cgroup/pids.max", "max\n");
  write(root, "sys/fs/cgroup/a/pids.max", "100\n");
  write(root, "sys/fs/cgroup/a/pids.current", "30\n");
  std::filesystem::create_directories(root / "dev/shm");
  const HostFacts facts = read_host_facts(root.path());
  CHECK(facts.open_files.soft == 1024);
  CHECK(facts.open_files.hard == 4096);
  CHECK(facts.locked_memory.soft == 65536);
  CHECK(facts.locked_memory.hard == kNoLimit);
  CHECK(facts.threads_left == 70);
  REQUIRE(facts.shared_memory);
  CHECK(facts.shared_memory->size >= facts.shared_memory->free);
}

TEST_CASE("host facts: the core that is governed worst") {
  const test::TempFolder root;
  const std::string cpus = "sys/devices/system/cpu/";
  for (const char* core : {"cpu0", "cpu1", "cpu2"}) {
    write(root, cpus + core + "/cpufreq/scaling_governor", "performance\n");
    write(root, cpus + core + "/cpufreq/cpuinfo_max_freq", "3500000\n");
    write(root, cpus + core + "/cpufreq/scaling_max_freq", "3500000\n");
  }
  CHECK(read_host_facts(root.path()).cpu.governor == "performance");
  CHECK(read_host_facts(root.path()).cpu.allowed_khz == 3'500'000);
  write(root, cpus + "cpu1/cpufreq/scaling_governor", "powersave\n");
  write(root, cpus + "cpu1/cpufreq/scaling_max_freq", "1200000\n");
  write(root, cpus + "cpufreq/scaling_governor", "no core\n");
  const CpuFacts cpu = read_host_facts(root.path()).cpu;
  CHECK(cpu.governor == "powersave");
  CHECK(cpu.most_khz == 3'500'000);
  CHECK(cpu.allowed_khz == 1'200'000);
}

TEST_CASE("host facts: clock sources, NUMA nodes") {
  const test::TempFolder root;
  const std::string clock = "sys/devices/system/clocksource/clocksource0/";
  write(root, clock + "current_clocksource", "hpet\n");
  write(root, clock + "available_clocksource", "tsc hpet acpi_pm \n");
  write(root, "sys/devices/system/node/node0/cpulist", "0-3\n");
  write(root, "sys/devices/system/node/node1/cpulist", "4-7\n");
  write(root, "sys/devices/system/node/online", "0-1\n");
  write(root, "proc/sys/kernel/numa_balancing", "1\n");
  write(root, "sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
  const HostFacts facts = read_host_facts(root.path());
  CHECK(facts.clock_source == "hpet");
  CHECK(facts.clock_sources == std::vector<std::string>{"tsc", "hpet", "acpi_pm"});
  CHECK(facts.numa_nodes == 2);
  CHECK(facts.moves_pages);
  CHECK(numa_node(root.path(), "0000:3b:00.0") == 1);
}

TEST_CASE("host facts: network cards; in a container, which has no hardware, all of them") {
  const test::TempFolder root;
  write(root, "sys/class/net/lo/operstate", "unknown\n");
  write(root, "sys/class/net/eth0/operstate", "up\n");
  write(root, "sys/class/net/eth0/speed", "10000\n");
  write(root, "sys/class/net/tun0/operstate", "down\n");
  write(root, "sys/class/net/tun0/speed", "-1\n");
  std::vector<Card> cards = read_host_facts(root.path()).cards;
  REQUIRE(cards.size() == 2);
  CHECK(cards[0].name == "eth0");
  CHECK(cards[0].up);
  CHECK(cards[0].gbit == 10);
  CHECK_FALSE(cards[1].up);
  CHECK(cards[1].gbit == 0);
  write(root, "sys/class/net/ens1/operstate", "up\n");
  write(root, "sys/class/net/ens1/device/vendor", "0x15b3\n");
  write(root, "sys/class/net/ens1/speed", "4294967295\n");  // not known, as old drivers say it
  cards = read_host_facts(root.path()).cards;
  REQUIRE(cards.size() == 1);
  CHECK(cards[0].name == "ens1");
  CHECK(cards[0].gbit == 0);
}

TEST_CASE("host facts: ports of InfiniBand") {
  const test::TempFolder root;
  write(root, "sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  write(root, "sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n");
  write(root, "sys/class/infiniband/mlx5_1/ports/1/state", "2: INIT\n");
  const std::vector<Card> ports = read_host_facts(root.path()).rdma_ports;
  REQUIRE(ports.size() == 2);
  CHECK(ports[0].name == "mlx5_0 port 1");
  CHECK(ports[0].up);
  CHECK(ports[0].gbit == 200);
  CHECK_FALSE(ports[1].up);
  CHECK(ports[1].state == "INIT");
}

}  // namespace
}  // namespace fsdp::tools::doctor
