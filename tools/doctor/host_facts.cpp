// Readers of small files. One that is not there says nothing. Contract: tools/doctor/host_facts.h.
#include "tools/doctor/host_facts.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include <sys/statvfs.h>
#include <unistd.h>

#include "tools/launch/core_places.h"
#include "tools/launch/host_load.h"

namespace fsdp::tools::doctor {
namespace {

namespace fs = std::filesystem;

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

// "node0", "cpu12": the prefix and a number.
bool is_numbered(const fs::path& path, std::string_view prefix) {
  const std::string name = path.filename().string();
  return name.size() > prefix.size() && name.starts_with(prefix) &&
         name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
}

// "Max open files            1024                 4096                 files     "
Limit limit_in(const fs::path& file, std::string_view name) {
  Limit limit;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream words(line.substr(name.size()));
    std::string soft, hard;
    words >> soft >> hard;
    const auto number = [](const std::string& word) {
      return word.find_first_not_of("0123456789") == word.npos && !word.empty() ? std::stod(word)
                                                                                : kNoLimit;
    };
    limit = {.soft = number(soft), .hard = number(hard)};
  }
  return limit;
}

CpuFacts read_cpu(const fs::path& root) {
  std::ifstream in(root / "proc/cpuinfo");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  CpuFacts cpu = {.name = parse_cpuinfo(text).name,
                  .cores = static_cast<int>(own_cores().size()),
                  .of_host = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))};
  for (const fs::path& core : entries(root / "sys/devices/system/cpu")) {
    const std::string governor = first_line(core / "cpufreq/scaling_governor");
    if (!is_numbered(core, "cpu") || governor.empty()) continue;
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

// Those with hardware of their own or, in a container, which has none, all.
std::vector<Card> read_cards(const fs::path& root) {
  std::vector<Card> all, own;
  for (const fs::path& card : entries(root / "sys/class/net")) {
    const std::string name = card.filename().string();
    if (name == "lo" || !fs::is_directory(card)) continue;
    const double mbit = number_in(card / "speed", 0);
    all.push_back({.name = name,
                   .up = first_line(card / "operstate") == "up",
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
      std::string state = first_line(port / "state");
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

std::string first_line(const fs::path& file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  return line;
}

int numa_node(const fs::path& root, const std::string& pci_address) {
  return static_cast<int>(number_in(root / "sys/bus/pci/devices" / pci_address / "numa_node", -1));
}

HostFacts read_host_facts(const fs::path& root) {
  HostFacts facts;
  facts.cpu = read_cpu(root);
  const fs::path clock = root / "sys/devices/system/clocksource/clocksource0";
  facts.clock_source = first_line(clock / "current_clocksource");
  std::istringstream sources(first_line(clock / "available_clocksource"));
  for (std::string source; sources >> source;) facts.clock_sources.push_back(source);
  for (const fs::path& node : entries(root / "sys/devices/system/node")) {
    if (is_numbered(node, "node")) ++facts.numa_nodes;
  }
  facts.moves_pages = number_in(root / "proc/sys/kernel/numa_balancing", 0) > 0;
  facts.quota = cpu_quota(root);
  facts.memory = available_memory(root, std::nullopt);
  facts.threads_left = read_threads_left(root);
  facts.open_files = limit_in(root / "proc/self/limits", "Max open files");
  facts.locked_memory = limit_in(root / "proc/self/limits", "Max locked memory");
  facts.shared_memory = read_space(root / "dev/shm");
  facts.cards = read_cards(root);
  facts.rdma_ports = read_rdma_ports(root);
  return facts;
}

}  // namespace fsdp::tools::doctor
