// Readers of /proc and /sys, on folders as machines have them.
// Requirements: S1.23.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include "comm/mpi_transport.h"
#include "tests/support/temp_folder.h"
#include "tools/doctor/facts.h"

namespace fsdp::tools::doctor {
namespace {

void write(const test::TempFolder& root, const std::string& path, const std::string& text) {
  std::filesystem::create_directories((root / path).parent_path());
  root.write(path, text);
}

TEST_CASE("host facts: a host that says nothing has no limits") {
  const test::TempFolder root;
  const HostFacts facts = read_host_facts(root.path());
  CHECK(facts.threads_left == kNoLimit);
  CHECK_FALSE(facts.shared_memory);
  CHECK(facts.cards.empty());
  CHECK(facts.rdma_ports.empty());
  CHECK(facts.cpu.governor.empty());
  CHECK(facts.cpu.cores >= 1);
  CHECK(facts.cpu.of_host >= facts.cpu.cores);
  CHECK(facts.numa_nodes == 0);
}

TEST_CASE("host facts: limits of the process") {
  struct rlimit before = {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  struct rlimit lower = before;
  lower.rlim_cur = 200;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &lower) == 0);
  const HostFacts facts = read_host_facts(test::TempFolder().path());
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(facts.open_files.soft == 200);
  const bool unlimited = before.rlim_max == RLIM_INFINITY;
  CHECK(facts.open_files.hard == (unlimited ? kNoLimit : static_cast<double>(before.rlim_max)));
  CHECK(facts.locked_memory.soft <= facts.locked_memory.hard);
}

TEST_CASE("host facts: limits of the control groups, and /dev/shm") {
  const test::TempFolder root;
  write(root, "proc/self/cgroup", "0::/a\n");
  write(root, "sys/fs/cgroup/pids.max", "max\n");
  write(root, "sys/fs/cgroup/a/pids.max", "100\n");
  write(root, "sys/fs/cgroup/a/pids.current", "30\n");
  std::filesystem::create_directories(root / "dev/shm");
  const HostFacts facts = read_host_facts(root.path());
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

TEST_CASE("host facts: NUMA nodes") {
  const test::TempFolder root;
  write(root, "sys/devices/system/node/node0/cpulist", "0-3\n");
  write(root, "sys/devices/system/node/node1/cpulist", "4-7\n");
  write(root, "sys/devices/system/node/online", "0-1\n");
  CHECK(read_host_facts(root.path()).numa_nodes == 2);
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
  const auto is_up = [&](const std::string& state) {
    write(root, "sys/class/net/tun0/operstate", state + "\n");
    return read_host_facts(root.path()).cards[1].up;
  };
  CHECK(is_up("unknown"));  // virtio and IPoIB of some kernels
  CHECK(is_up("dormant"));
  CHECK_FALSE(is_up("lowerlayerdown"));
  CHECK_FALSE(is_up("notpresent"));
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

TEST_CASE("driver: its version in /proc, of the closed and of the open module") {
  CHECK(driver_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19\n"
                       "GCC version:  gcc version 12.3.0\n") == "535.129.03");
  CHECK(driver_version("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  "
                       "Release Build  (root@host)\n") == "550.54.15");
  CHECK(driver_version("").empty());
}

TEST_CASE("libraries: GPUs or the reason, MPI or nothing of it") {
  const test::TempFolder root;
  std::filesystem::create_directories(root / "proc/driver/nvidia");
  root.write("proc/driver/nvidia/version", "NVRM version: Module  1.2.3  Thu\n");
  const GpuFacts facts = read_gpu_facts(root.path());
  CHECK(facts.gpus.empty() == !facts.no_gpus.empty());
  CHECK(facts.driver == "1.2.3");
  const MpiFacts mpi = read_mpi_facts(root.path());
  CHECK(mpi.mpi.version.empty() == !comm::MpiRuntime::available());
  if (mpi.mpi.version.empty()) CHECK(mpi.mpirun.empty());
}

}  // namespace
}  // namespace fsdp::tools::doctor
