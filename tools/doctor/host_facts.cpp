// Readers of small files. One that is not there says nothing. Contract: tools/doctor/facts.h.
#include <algorithm>
#include <cerrno>
#include <fstream>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/doctor/facts.h"
#include "tools/launch/host_load.h"
#include "tools/launch/thread_choice.h"

namespace fsdp::tools::doctor {
namespace {

namespace fs = std::filesystem;
using proc::first_line_of;

double number_in(const fs::path& file, double otherwise) {
  double number = otherwise;
  return std::ifstream(file) >> number ? number : otherwise;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) out.push_back(entry.path());
  std::ranges::sort(out);
  return out;
}

Limit limit_of(decltype(RLIMIT_NOFILE) resource) {
  struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
  ::getrlimit(resource, &limit);
  const auto number = [](rlim_t value) {
    return value == RLIM_INFINITY ? kNoLimit : static_cast<double>(value);
  };
  return {.soft = number(limit.rlim_cur), .hard = number(limit.rlim_max)};
}

CpuFacts read_cpu(const fs::path& root) {
  CpuFacts cpu = {.name = parse_cpuinfo(proc::text_of(root / "proc/cpuinfo")).name,
                  .cores = static_cast<int>(own_cores().size()),
                  .of_host = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))};
  for (const fs::path& core : entries(root / "sys/devices/system/cpu")) {
    const std::string governor = first_line_of(core / "cpufreq/scaling_governor");
    if (governor.empty()) continue;
    if (cpu.governor.empty() || governor != "performance") cpu.governor = governor;
    const double most = number_in(core / "cpufreq/cpuinfo_max_freq", 0);
    const double allowed = number_in(core / "cpufreq/scaling_max_freq", most);
    if (cpu.most_khz > 0 && allowed - most >= cpu.allowed_khz - cpu.most_khz) continue;
    cpu.most_khz = most;
    cpu.allowed_khz = allowed;
  }
  return cpu;
}

// How many more threads the control groups allow.
double read_threads_left(const fs::path& root) {
  double left = kNoLimit;
  for (const ControlGroup& group : control_groups(root, "pids")) {
    const double most = number_in(group.folder / "pids.max", kNoLimit);
    left = std::min(left, most - number_in(group.folder / "pids.current", 0));
  }
  return left;
}

std::optional<Space> read_space(const fs::path& folder) {
  struct statvfs of_folder = {};
  if (::statvfs(folder.c_str(), &of_folder) != 0) return std::nullopt;
  const auto unit = static_cast<double>(of_folder.f_frsize);
  return Space{.size = unit * static_cast<double>(of_folder.f_blocks),
               .free = unit * static_cast<double>(of_folder.f_bavail)};
}

// The cards with hardware of their own; all cards in a container, whose cards have no hardware.
std::vector<Card> read_cards(const fs::path& root) {
  std::vector<Card> all, own;
  for (const fs::path& card : entries(root / "sys/class/net")) {
    const std::string name = card.filename().string();
    if (name == "lo" || !fs::is_directory(card)) continue;
    const std::string state = first_line_of(card / "operstate");  // of some drivers "unknown"
    const double mbit = number_in(card / "speed", 0);
    all.push_back({.name = name,
                   .up = state != "down" && state != "lowerlayerdown" && state != "notpresent",
                   .gbit = mbit > 0 && mbit < 1e8 ? mbit / 1000 : 0});
    if (fs::exists(card / "device")) own.push_back(all.back());
  }
  return own.empty() ? all : own;
}

// "4: ACTIVE" and "200 Gb/sec (4X HDR)".
std::vector<Card> read_rdma_ports(const fs::path& root) {
  std::vector<Card> out;
  for (const fs::path& device : entries(root / "sys/class/infiniband")) {
    for (const fs::path& port : entries(device / "ports")) {
      std::string state = first_line_of(port / "state");
      state.erase(0, state.find(' ') == state.npos ? 0 : state.find(' ') + 1);
      out.push_back({.name = device.filename().string() + " port " + port.filename().string(),
                     .up = state == "ACTIVE",
                     .gbit = number_in(port / "rate", 0),
                     .state = state});
    }
  }
  return out;
}

}  // namespace

HostFacts read_host_facts(const fs::path& root) {
  HostFacts facts;
  facts.cpu = read_cpu(root);
  for (const fs::path& node : entries(root / "sys/devices/system/node")) {
    if (fs::exists(node / "cpulist")) ++facts.numa_nodes;
  }
  facts.quota = cpu_quota(root);
  facts.memory = available_memory(root, std::nullopt, Ram::kAll);
  facts.threads_left = read_threads_left(root);
  facts.open_files = limit_of(RLIMIT_NOFILE);
  facts.locked_memory = limit_of(RLIMIT_MEMLOCK);
  facts.addresses = limit_of(RLIMIT_AS);
  if (::geteuid() != 0) facts.processes = limit_of(RLIMIT_NPROC);
  facts.shared_memory = read_space(root / "dev/shm");
  facts.cards = read_cards(root);
  facts.rdma_ports = read_rdma_ports(root);
  return facts;
}

FreeSpace read_free_space(const fs::path& folder) {
  FreeSpace space = {.folder = fs::absolute(folder).lexically_normal()};
  struct statvfs there = {};
  while (::statvfs(space.folder.c_str(), &there) != 0) {
    const bool above = errno == ENOENT && space.folder.has_relative_path();
    if (!above)
      throw SystemError(fmt::format("{}: its free space is not known", folder.string()), errno);
    space.folder = space.folder.parent_path();
  }
  space.bytes = static_cast<double>(there.f_frsize) * static_cast<double>(there.f_bavail);
  space.inodes = there.f_files > 0 ? static_cast<double>(there.f_favail) : kNoLimit;
  return space;
}

}  // namespace fsdp::tools::doctor
