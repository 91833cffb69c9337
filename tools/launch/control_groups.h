// The control groups that this process is in, of version 1 and 2, and the CPUs that they give it.
// Not here: the memory that they give (available_memory.h), cores that are forbidden
// (core_places.h).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::tools {

struct ControlGroup {
  std::filesystem::path folder;  // of its files
  std::string name;              // "/a/b"
  int version = 2;

  // "cpu.max of the control group /a"
  std::string source(std::string_view file) const;
};

// The groups whose limits of a controller ("cpu", "memory") count: the process's own, and the ones
// around it. In a container the path of a group may be the host's, which is not there: then the
// mount itself is the group. `root`: where /proc and /sys are found.
std::vector<ControlGroup> control_groups(const std::filesystem::path& root,
                                         std::string_view controller);

// The time that all processes of a group may compute, in CPUs: docker --cpus=1.5, a limit of
// Kubernetes. The smallest one of the groups.
struct CpuQuota {
  double cpus = 0;     // 0: no limit
  std::string source;  // "cpu.max of the control group /a"
};
CpuQuota cpu_quota(const std::filesystem::path& root = "/");

}  // namespace fsdp::tools
