// Reading of /proc and /sys. A file that is not there, or says "max", is no limit.
#include "tools/launch/available_memory.h"

#include <fstream>
#include <limits>

#include <sys/resource.h>

#include "tools/launch/control_groups.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

std::optional<size_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  size_t bytes = 0;
  if (in >> bytes) return bytes;
  return std::nullopt;
}

// Old kernels, and some that only look like Linux, do not say what is available.
AvailableMemory ram(const fs::path& root, Ram part) {
  AvailableMemory out = {.bytes = std::numeric_limits<size_t>::max(), .source = "RAM"};
  std::ifstream in(root / "proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    const auto bytes = [&] { return std::stoull(line.substr(line.find(':') + 1)) * 1024; };
    if (line.starts_with("MemTotal:")) out.bytes = bytes();
    if (part == Ram::kAvailable && line.starts_with("MemAvailable:")) {
      return {.bytes = bytes(), .source = "available RAM", .is_left = true};
    }
  }
  return out;
}

void take_smaller(AvailableMemory& least, std::optional<size_t> bytes, std::string source) {
  if (!bytes || *bytes >= least.bytes) return;
  least = {.bytes = *bytes, .source = std::move(source)};
}

}  // namespace

AvailableMemory available_memory(const fs::path& root, std::optional<size_t> addresses, Ram part) {
  AvailableMemory least = ram(root, part);
  for (const ControlGroup& group : control_groups(root, "memory")) {
    const char* const file = group.version == 2 ? "memory.max" : "memory.limit_in_bytes";
    take_smaller(least, number_in(group.folder / file), group.source(file));
  }
  if (addresses && *addresses < least.bytes) {
    least = {.bytes = *addresses, .source = "ulimit -v", .of_process = true};
  }
  return least;
}

AvailableMemory available_memory() {
  rlimit limit = {};
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return available_memory("/", limited ? std::optional<size_t>(limit.rlim_cur) : std::nullopt);
}

}  // namespace fsdp::tools
