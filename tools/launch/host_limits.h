// What limits the processes of this machine: the control groups that they are in (versions 1 and 2)
// with the CPU time that these give, and how much memory they may use: the smallest of what is
// available of its RAM, the limits of the control groups, and the limit of addresses.
// Not here: what a run needs (tools/predict), which cores are allowed (thread_choice.h).
//
// [Note: what is left] MemAvailable is what nobody holds at this moment: what this process and the
// other ranks hold has gone from it already, the pages of files in memory have not. So ranks that
// share it must look before one of them takes anything large, and take the least that one of them
// has seen: tools/run does both. A limit is not less for what is held. A comparison of a limit with
// what is left neglects the bytes of a program without a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
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

struct AvailableMemory {
  size_t bytes = 0;
  std::string source;       // "available RAM", "memory.max of the control group /a/b", "ulimit -v"
  bool of_process = false;  // every process has as much: ulimit -v
  bool is_left = false;     // without what is held now. [Note: what is left]
};

enum class Ram : uint8_t { kAvailable, kAll };
// `root`: where /proc and /sys are found, for tests. `addresses`: the limit of a process, if any.
AvailableMemory available_memory(const std::filesystem::path& root, std::optional<size_t> addresses,
                                 Ram part = Ram::kAvailable);
AvailableMemory available_memory();  // of this process

}  // namespace fsdp::tools
