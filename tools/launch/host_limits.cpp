// Reading of /proc and /sys. A file that does not exist, or says "max" or -1, is no limit.
// Contract: tools/launch/host_limits.h.
#include "tools/launch/host_limits.h"

#include <fstream>
#include <limits>
#include <sstream>

#include <sys/resource.h>

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

bool is_among(const std::string& controllers, std::string_view wanted) {
  std::stringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == wanted) return true;
  }
  return false;
}

// "100000 100000"; what is left out, or no number, is 0.
std::pair<double, double> two_numbers(const fs::path& file) {
  std::pair<double, double> numbers = {0, 0};
  std::ifstream(file) >> numbers.first >> numbers.second;
  return numbers;
}

// Microseconds of computing in each period.
double cpus_of(const ControlGroup& group) {
  auto [quota, period] = two_numbers(group.folder / (group.version == 2 ? "cpu.max"  //
                                                                        : "cpu.cfs_quota_us"));
  if (group.version == 1) period = two_numbers(group.folder / "cpu.cfs_period_us").first;
  constexpr double kUsualPeriod = 100'000;
  return quota > 0 ? quota / (period > 0 ? period : kUsualPeriod) : 0;
}

}  // namespace

std::string ControlGroup::source(std::string_view file) const {
  return std::string(file) + " of the control group " + name;
}

std::vector<ControlGroup> control_groups(const fs::path& root, std::string_view controller) {
  std::vector<ControlGroup> groups;
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "4:cpu,cpuacct:/a/b", "0::/a/b"
    std::stringstream parts(line);
    std::string id, controllers, name;
    std::getline(parts, id, ':');
    std::getline(parts, controllers, ':');
    std::getline(parts, name);
    const bool unified = id == "0" && controllers.empty();
    if (!unified && !is_among(controllers, controller)) continue;
    fs::path mount = unified ? mounts : mounts / controllers;
    if (!unified && !fs::is_directory(mount)) mount = mounts / controller;
    for (fs::path path = name;; path = path.parent_path()) {
      groups.push_back({mount / path.relative_path(), path.string(), unified ? 2 : 1});
      if (path == path.parent_path()) break;
    }
  }
  return groups;
}

CpuQuota cpu_quota(const fs::path& root) {
  CpuQuota least;
  for (const ControlGroup& group : control_groups(root, "cpu")) {
    const double cpus = cpus_of(group);
    if (cpus == 0 || (least.cpus > 0 && least.cpus <= cpus)) continue;
    least = {cpus, group.source(group.version == 2 ? "cpu.max" : "cpu.cfs_quota_us")};
  }
  return least;
}

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
