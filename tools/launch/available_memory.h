// How much memory the processes of this machine may use: the smallest of its RAM, the limits of the
// control groups that this process is in (versions 1 and 2), and the limit of its addresses.
// Not here: what a run needs (tools/predict).
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace fsdp::tools {

struct AvailableMemory {
  size_t bytes = 0;
  std::string source;       // "RAM", "memory.max of the control group /a/b", "ulimit -v"
  bool of_process = false;  // every process has as much: ulimit -v
};

// `root`: where /proc and /sys are found, for tests. `addresses`: the limit of a process, if any.
AvailableMemory available_memory(const std::filesystem::path& root,
                                 std::optional<size_t> addresses);
AvailableMemory available_memory();  // of this process

}  // namespace fsdp::tools
