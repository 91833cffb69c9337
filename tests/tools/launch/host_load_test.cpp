// What the texts of /proc and /sys say about the host, its processes and its GPUs.
#include "tools/launch/host_load.h"

#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

constexpr const char* kStat =
    "cpu  100 20 30 800 50 1 2 7 15 4\n"
    "cpu0 50 10 15 400 25 0 1 3 7 2\n"
    "ctxt 12345\n";
constexpr const char* kMeminfo =
    "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    6000000 kB\n";
// The name holds what could end it; field 8 is -1, as without a terminal.
constexpr const char* kSelf =
    "4711 (a) b (c)) R 17509 17509 2448 0 -1 4194304 100 0 3 0 250 30 0 0 20 0 9 0 7652586 3133440 "
    "512 18446744073709551615 94155405852672 0 0 0 0\n";

TEST_CASE("host load: counters from the texts of /proc") {
  const HostCounters counters = parse_counters(kStat, kMeminfo, kSelf, 4096);
  CHECK(counters.ticks == 100 + 20 + 30 + 800 + 50 + 1 + 2 + 7);  // guests are in the first two
  CHECK(counters.busy == 100 + 20 + 30 + 1 + 2 + 7);              // neither idle nor waiting
  CHECK(counters.process == 250 + 30);
  CHECK(counters.resident == 512 * 4096);
  CHECK(counters.memory_total == 16000000.0 * 1024);
  CHECK(counters.memory_used == 10000000.0 * 1024);
}

TEST_CASE("host load: texts that say nothing, or stop in the middle") {
  for (const std::string& text :
       {std::string(), std::string("cpu"), std::string("4711 (a"), std::string("4711 (a) "),
        std::string("4711 (a) R"), std::string("MemTotal:"), std::string("\n\n")}) {
    CAPTURE(text);
    const HostCounters counters = parse_counters(text, text, text, 4096);
    CHECK(counters.ticks == 0);
    CHECK(counters.process == 0);
    CHECK(counters.resident == 0);
    CHECK(counters.memory_total == 0);
    CHECK(counters.memory_used == 0);
  }
  const test::TempFolder empty;
  CHECK(read_counters(empty.path()).ticks == 0);
}

TEST_CASE("host load: how old this process is") {
  const test::TempFolder proc;
  std::filesystem::create_directory(proc / "self");
  CHECK(process_age_s(proc.path()) == 0);
  proc.write("self/stat", kSelf);  // started after 7652586 ticks
  proc.write("uptime", "76529.86 1000.00\n");
  CHECK(process_age_s(proc.path()) ==
        doctest::Approx(76529.86 - 7652586.0 / static_cast<double>(ticks_per_second())));
  // A start is told in ticks of 10 ms, in which this one may still be.
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK(process_age_s() > 0);
  CHECK(process_age_s() < 3600);
}

TEST_CASE("host load: between two moments") {
  const HostCounters before = {.busy = 100, .ticks = 1000, .process = 50};
  const HostCounters now = {.busy = 150, .ticks = 1200, .process = 350};
  const HostLoad load = load_between(before, now, 2, 100);
  CHECK(load.cpu == 25);       // 50 of 200 ticks
  CHECK(load.process == 150);  // 3 of 2 seconds: one thread and a half
  CHECK(!load_between(before, before, 0, 100).cpu);
  CHECK(!load_between(before, before, 0, 100).process);
  CHECK(load_between(before, before, 1, 100).process == 0);
  // Waiting that was taken back.
  CHECK(load_between(before, {.busy = 150, .ticks = 1040}, 1, 100).cpu == 100);
}

TEST_CASE("host load: of this machine") {
  const HostCounters counters = read_counters();
  CHECK(counters.ticks >= counters.busy);
  CHECK(counters.busy > 0);
  CHECK(counters.resident > 0);
  CHECK(counters.memory_total > counters.memory_used);
  CHECK(ticks_per_second() > 0);
}

TEST_CASE("host load: the processor's name, and the clock of its fastest core") {
  const CpuInfo info = parse_cpuinfo(
      "processor\t: 0\nmodel name\t: A CPU @ 3 GHz\ncpu MHz\t\t: 2400.5\n\n"
      "processor\t: 1\nmodel name\t: A CPU @ 3 GHz\ncpu MHz\t\t: 3100.25\n");
  CHECK(info.name == "A CPU @ 3 GHz");
  CHECK(info.clock_mhz == 3100.25);
  CHECK(parse_cpuinfo("").name == "unknown CPU");
  CHECK(!parse_cpuinfo("").clock_mhz);
}

void write(const test::TempFolder& root, const std::string& name, const std::string& text) {
  std::filesystem::create_directories((root / name).parent_path());
  root.write(name, text);
}

TEST_CASE("host activity: every number, from a root with two cards and two ports") {
  const test::TempFolder root;
  write(root, "proc/net/dev",
        "Inter-|   Receive                            |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n"
        "    lo: 55471012  467131    0    0    0     0          0         0 55471012  467131 0 0\n"
        "  eth0: 1000 41403    0    0    0     0          0         0  200   29960    0 0\n"
        "eth1:  24 41403    0    0    0     0          0         0  56   29960    0 0\n"
        " eth0.7: 77 1 0 0 0 0 0 0 77 1 0 0\n"
        "docker0: 77 1 0 0 0 0 0 0 77 1 0 0\n");
  write(root, "sys/class/net/eth0/device/vendor", "0x1af4\n");
  write(root, "sys/class/net/eth1/device/vendor", "0x1af4\n");
  write(root, "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "10\n");
  write(root, "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "20\n");
  write(root, "sys/class/infiniband/mlx5_1/ports/1/counters/port_rcv_data", "5\n");
  write(root, "sys/class/infiniband/mlx5_1/ports/1/counters/port_xmit_data", "7\n");
  write(root, "proc/net/snmp",
        "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
        "Tcp: RtoAlgorithm MaxConn OutSegs RetransSegs InErrs\nTcp: 1 -1 432371 22 0\n");
  write(root, "proc/diskstats",
        "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        " 254       0 vda 3724990 79039 4 5655542 4307860 619143 6 21435131 0 2165644 28867302\n");
  write(root, "proc/pressure/cpu",
        "some avg10=77.09 avg60=75.11 avg300=46.27 total=2500000\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
  write(root, "proc/pressure/memory", "some avg10=0.00 avg60=0.04 avg300=0.63 total=0\n");
  write(root, "proc/loadavg", "5.01 3.45 2.60 8/118 11874\n");
  write(root, "proc/meminfo",
        "MemTotal:       16000000 kB\nMemAvailable:    6000000 kB\nSwapTotal:  3000 kB\n"
        "SwapFree:  1000 kB\n");
  const HostActivity got = read_host_activity({254, 0}, root.path());
  CHECK(got.received == 1024);  // no loopback, VLAN or bridge
  CHECK(got.sent == 256);
  CHECK(got.infiniband_received == 4 * 15);
  CHECK(got.infiniband_sent == 4 * 27);
  CHECK(got.retransmitted == 22);
  CHECK(got.read == 4 * 512);
  CHECK(got.written == 6 * 512);
  CHECK(got.cpu_stalled == 2.5);
  CHECK(got.memory_stalled == 0);
  CHECK(!got.io_stalled);  // no such file
  CHECK(got.load == 5.01);
  CHECK(got.memory_available == 6000000.0 * 1024);
  CHECK(got.swap_used == 2000.0 * 1024);
  CHECK(!read_host_activity({8, 1}, root.path()).read);  // a disk of another host
  // In a container no card has a device.
  std::filesystem::remove_all(root / "sys/class/net");
  CHECK(read_host_activity({254, 0}, root.path()).received == 1024 + 2 * 77);
}

TEST_CASE("host activity: files that are missing, or say nothing") {
  const test::TempFolder root;
  CHECK(!read_host_activity({254, 0}, root.path()).received);
  for (const std::string text : {"", "\n", "some", "Tcp: ", "Tcp: RetransSegs\nTcp: \n",
                                 "eth0: 1 2", "254 0 vda 1 2", "some total=", "MemAvailable:"}) {
    CAPTURE(text);
    for (const char* name : {"proc/net/dev", "proc/net/snmp", "proc/diskstats", "proc/pressure/cpu",
                             "proc/pressure/io", "proc/meminfo"}) {
      write(root, name, text);
    }
    const HostActivity got = read_host_activity({254, 0}, root.path());
    for (const auto& number :
         {got.received, got.sent, got.infiniband_received, got.infiniband_sent, got.retransmitted,
          got.read, got.written, got.cpu_stalled, got.memory_stalled, got.io_stalled, got.load,
          got.memory_available, got.swap_used}) {
      CHECK(!number);
    }
  }
}

TEST_CASE("host activity: of this host") {
  const HostActivity got = read_host_activity(disk_of("."));
  CHECK(got.load);
  CHECK(got.memory_available.value_or(0) > 0);
  CHECK(disk_of("no/such/file").major == 0);
}

TEST_CASE("GPUs: their NUMA nodes, by PCI address") {
  const test::TempFolder folder;
  CHECK(numa_nodes_of_gpus(folder.path()).empty());
  for (const char* device : {"0000:c1:00.0", "0000:0a:00.0", "module"}) {
    std::filesystem::create_directories(folder / "sys/bus/pci/drivers/nvidia" / device);
  }
  folder.write("sys/bus/pci/drivers/nvidia/0000:c1:00.0/numa_node", "1\n");
  folder.write("sys/bus/pci/drivers/nvidia/0000:0a:00.0/numa_node", "0\n");
  folder.write("sys/bus/pci/drivers/nvidia/module/version", "1\n");
  CHECK(numa_nodes_of_gpus(folder.path()) ==
        std::map<std::string, int>{{"0000:0a:00.0", 0}, {"0000:c1:00.0", 1}});
}

TEST_CASE("a GPU may be used where the driver has a file for it and nobody hides it") {
  const test::TempFolder folder;
  CHECK(!may_use_gpu(nullptr, folder.path()));  // no /dev at all
  std::filesystem::create_directory(folder / "dev");
  for (const char* other : {"nvidiactl", "nvidia-uvm", "nvidia", "nvidia-caps1"}) {
    folder.write(std::string("dev/") + other, "");
  }
  CHECK(!may_use_gpu(nullptr, folder.path()));
  folder.write("dev/nvidia12", "");
  for (const char* visible : {"0", "3,1", "GPU-5f3c", "MIG-GPU-1"}) {
    CHECK(may_use_gpu(visible, folder.path()));
  }
  CHECK(may_use_gpu(nullptr, folder.path()));
  for (const char* hidden : {"", "-1", "NoDevFiles", "none"}) {
    CHECK(!may_use_gpu(hidden, folder.path()));
  }
}

}  // namespace
}  // namespace fsdp::tools
