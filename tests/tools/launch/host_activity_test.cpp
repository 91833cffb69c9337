// What a host sends, receives, reads and waits for, from files as Linux writes them.
// Requirements: S3.11.
#include "tools/launch/host_activity.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

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

}  // namespace
}  // namespace fsdp::tools
