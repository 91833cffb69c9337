// How much memory the processes of this machine may use: the smallest of what is available of its
// RAM, the limits of the control groups that this process is in (versions 1 and 2), and the limit
// of its addresses.
// Not here: what a run needs (tools/predict).
//
// [Note: what is left] MemAvailable is what nobody holds at this moment: what this process and the
// other ranks hold has gone from it already, the pages of files in memory have not. So ranks that
// share it must look before one of them takes anything large, and take the least that one of them
// has seen: tools/run/training_run_memory.cpp does both. A limit is not less for what is held.
// Whoever compares a limit with what is left neglects the bytes of a program without a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace fsdp::tools {

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
