// Reading of /proc/self/cgroup and /sys/fs/cgroup. A file that is not there, or says "max" or -1,
// is no limit. Contract: tools/launch/control_groups.h.
#include "tools/launch/control_groups.h"

#include <fstream>
#include <sstream>

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

}  // namespace fsdp::tools
