// Control groups of both versions, the CPU time that they give, and the smallest limit of memory.
#include "tools/launch/host_limits.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

void write(const test::TempFolder& root, const std::string& path, const std::string& text) {
  std::filesystem::create_directories((root / path).parent_path());
  root.write(path, text);
}

TEST_CASE("control groups: version 2, the least of the groups around the process") {
  const test::TempFolder root;
  CHECK(cpu_quota(root.path()).cpus == 0);  // no /proc, no /sys
  write(root, "proc/self/cgroup", "0::/kube/pod/c1\n");
  write(root, "sys/fs/cgroup/kube/pod/c1/cpu.max", "max 100000\n");
  CHECK(cpu_quota(root.path()).cpus == 0);
  write(root, "sys/fs/cgroup/kube/pod/cpu.max", "350000 100000\n");
  CHECK(cpu_quota(root.path()).cpus == 3.5);
  CHECK(cpu_quota(root.path()).source == "cpu.max of the control group /kube/pod");
  write(root, "sys/fs/cgroup/kube/cpu.max", "400000 50000\n");  // 8
  CHECK(cpu_quota(root.path()).cpus == 3.5);
  write(root, "sys/fs/cgroup/kube/pod/c1/cpu.max", "50000\n");  // the period is left out
  CHECK(cpu_quota(root.path()).cpus == 0.5);
}

TEST_CASE("control groups: the mount of a container is its group") {
  const test::TempFolder root;
  write(root, "proc/self/cgroup", "0::/\n");
  write(root, "sys/fs/cgroup/cpu.max", "150000 100000\n");
  CHECK(cpu_quota(root.path()).cpus == 1.5);
  CHECK(cpu_quota(root.path()).source == "cpu.max of the control group /");
  write(root, "proc/self/cgroup", "0::/../../docker/0123\n");  // of the host, not there
  CHECK(cpu_quota(root.path()).cpus == 1.5);
}

TEST_CASE("control groups: version 1, in a folder of the controller's or of its list") {
  for (const char* mount : {"cpu", "cpu,cpuacct"}) {
    CAPTURE(mount);
    const test::TempFolder root;
    const std::string folder = std::string("sys/fs/cgroup/") + mount;
    write(root, "proc/self/cgroup",
          "9:cpuset:/x\n5:cpuacct:/y\n4:cpu,cpuacct:/docker/12\n1:name=systemd:/z\n0::/w\n");
    write(root, folder + "/cpu.cfs_quota_us", "-1\n");
    write(root, folder + "/cpu.cfs_period_us", "100000\n");
    CHECK(cpu_quota(root.path()).cpus == 0);
    write(root, folder + "/docker/12/cpu.cfs_quota_us", "100000\n");
    write(root, folder + "/docker/12/cpu.cfs_period_us", "50000\n");
    CHECK(cpu_quota(root.path()).cpus == 2);
    write(root, folder + "/docker/cpu.cfs_quota_us", "100000\n");
    write(root, folder + "/docker/cpu.cfs_period_us", "100000\n");
    const CpuQuota least = cpu_quota(root.path());
    CHECK(least.cpus == 1);
    CHECK(least.source == "cpu.cfs_quota_us of the control group /docker");
  }
}

constexpr size_t kMiB = size_t{1} << 20;

TEST_CASE("available memory: RAM alone") {
  const test::TempFolder root;
  write(root, "proc/meminfo", "MemTotal:        2048 kB\nMemFree:  1 kB\n");
  const AvailableMemory memory = available_memory(root / "", std::nullopt);
  CHECK(memory.bytes == 2 * kMiB);
  CHECK(memory.source == "RAM");
  CHECK(!memory.is_left);
}

TEST_CASE("available memory: of the RAM what nobody holds now, if it is known") {
  const test::TempFolder root;
  write(root, "proc/meminfo",
        "MemTotal:        4096 kB\nMemFree:  1 kB\nMemAvailable:    3072 kB\n");
  const AvailableMemory memory = available_memory(root / "", std::nullopt);
  CHECK(memory.bytes == 3 * kMiB);
  CHECK(memory.source == "available RAM");
  CHECK(memory.is_left);
  CHECK(!available_memory(root / "", kMiB).is_left);
  CHECK(available_memory(root / "", std::nullopt, Ram::kAll).bytes == 4 * kMiB);
}

TEST_CASE("available memory: control groups of version 2, the one around it too") {
  const test::TempFolder root;
  write(root, "proc/meminfo", "MemTotal:        1048576 kB\n");
  write(root, "proc/self/cgroup", "0::/a/b\n");
  write(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
  CHECK(available_memory(root / "", std::nullopt).source == "RAM");
  write(root, "sys/fs/cgroup/a/memory.max", "629145600\n");
  const AvailableMemory memory = available_memory(root / "", std::nullopt);
  CHECK(memory.bytes == 600 * kMiB);
  CHECK(memory.source == "memory.max of the control group /a");
  CHECK(!memory.of_process);
}

TEST_CASE("available memory: control groups of version 1, and a container's own mount") {
  const test::TempFolder root;
  write(root, "proc/meminfo", "MemTotal:        1048576 kB\n");
  write(root, "proc/self/cgroup", "12:cpuset:/x\n4:memory:/docker/1234\n");
  write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");
  const AvailableMemory memory = available_memory(root / "", std::nullopt);
  CHECK(memory.bytes == 100 * kMiB);
  CHECK(memory.source == "memory.limit_in_bytes of the control group /");
}

TEST_CASE("available memory: the limit of addresses is every process's own") {
  const test::TempFolder root;
  write(root, "proc/meminfo", "MemTotal:        1048576 kB\n");
  CHECK(available_memory(root / "", size_t{1} << 40).source == "RAM");
  const AvailableMemory memory = available_memory(root / "", 50 * kMiB);
  CHECK(memory.bytes == 50 * kMiB);
  CHECK(memory.source == "ulimit -v");
  CHECK(memory.of_process);
  CHECK(available_memory().bytes > 16 * kMiB);  // of this machine
}

}  // namespace
}  // namespace fsdp::tools
