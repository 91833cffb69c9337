// Reading of /proc and /sys. A file that is not there, or says "max", is no limit.
#include "tools/launch/available_memory.h"

#include <fstream>
#include <limits>
#include <sstream>

#include <sys/resource.h>

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

std::optional<size_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  size_t bytes = 0;
  if (in >> bytes) return bytes;
  return std::nullopt;
}

size_t ram(const fs::path& root) {
  std::ifstream in(root / "proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("MemTotal:")) return std::stoull(line.substr(line.find(':') + 1)) * 1024;
  }
  return std::numeric_limits<size_t>::max();
}

void take_smaller(AvailableMemory& least, std::optional<size_t> bytes, std::string source) {
  if (!bytes || *bytes >= least.bytes) return;
  least = {.bytes = *bytes, .source = std::move(source)};
}

// A group's own limit and the limits of the groups around it. In a container its path may be the
// host's, which is not there: then the mount itself is the group.
void take_group(AvailableMemory& least, const fs::path& mount, const std::string& group,
                const char* file) {
  for (fs::path path = group;; path = path.parent_path()) {
    take_smaller(least, number_in(mount / path.relative_path() / file),
                 std::string(file) + " of the control group " + path.string());
    if (path == path.parent_path()) break;
  }
}

}  // namespace

AvailableMemory available_memory(const fs::path& root, std::optional<size_t> addresses) {
  AvailableMemory least = {.bytes = ram(root), .source = "RAM"};
  const fs::path groups = root / "sys/fs/cgroup";
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "4:memory:/a/b", "0::/a/b"
    std::stringstream parts(line);
    std::string id, controllers, group;
    std::getline(parts, id, ':');
    std::getline(parts, controllers, ':');
    std::getline(parts, group);
    if (id == "0" && controllers.empty()) take_group(least, groups, group, "memory.max");
    if (controllers.find("memory") != std::string::npos) {
      take_group(least, groups / "memory", group, "memory.limit_in_bytes");
    }
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
