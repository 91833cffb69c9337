// CPU time that control groups give, on files of both versions.
#include "tools/launch/control_groups.h"

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

}  // namespace
}  // namespace fsdp::tools
