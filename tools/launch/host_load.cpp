// Reading of /proc and /sys. proc(5) and the kernel's Documentation/accounting/psi and
// Documentation/ABI/stable/sysfs-class-infiniband name the fields.
#include "tools/launch/host_load.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/io/file.h"

namespace fsdp::tools {
namespace proc {

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::string first_line_of(const std::filesystem::path& file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  return line;
}

std::vector<uint64_t> numbers_in(std::string_view text) {
  std::vector<uint64_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    while (at != end && (*at == ' ' || *at == '\t')) ++at;
    uint64_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return numbers;
    numbers.push_back(number);
    at = rest;
  }
}

std::vector<uint64_t> numbers_of_line(std::string_view text, std::string_view name) {
  for (;;) {
    if (text.starts_with(name)) return numbers_in(text.substr(name.size()));
    const size_t end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
}

}  // namespace proc

namespace {

using proc::numbers_in;
using proc::numbers_of_line;
using proc::text_of;

double kibibytes(std::string_view meminfo, std::string_view name) {
  const std::vector<uint64_t> numbers = numbers_of_line(meminfo, name);
  return numbers.empty() ? 0 : static_cast<double>(numbers.front()) * 1024;
}

uint64_t field(const std::vector<uint64_t>& numbers, size_t index) {
  return index < numbers.size() ? numbers[index] : 0;
}

// Of /proc/self/stat, from field 4 on.
std::vector<uint64_t> fields_of_process(std::string_view self_stat) {
  // "12 (a name) S 3 4 ...": the name may hold anything. The state, which is no number, is field 3.
  const size_t name_end = self_stat.rfind(") ");
  if (name_end == self_stat.npos || self_stat.size() < name_end + 4) return {};
  std::string text(self_stat.substr(name_end + 4));
  // Field 8 is -1 without a terminal, and priorities may be below 0.
  std::replace(text.begin(), text.end(), '-', ' ');
  return numbers_in(text);
}

}  // namespace

CpuInfo parse_cpuinfo(const std::string& text) {
  CpuInfo info = {.name = "unknown CPU", .clock_mhz = std::nullopt};
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("model name")) info.name = value;
    if (line.starts_with("cpu MHz")) {
      info.clock_mhz = std::max(info.clock_mhz.value_or(0), std::atof(value.c_str()));
    }
  }
  return info;
}

HostCounters parse_counters(std::string_view stat, std::string_view meminfo,
                            std::string_view self_stat, int64_t page_bytes) {
  HostCounters counters;
  // user nice system idle iowait irq softirq steal; guests are in user.
  constexpr size_t kIdle = 3, kWaiting = 4, kCounted = 8;
  const std::vector<uint64_t> cpu = numbers_of_line(stat, "cpu ");
  for (size_t i = 0; i < std::min(cpu.size(), kCounted); ++i) {
    counters.ticks += cpu[i];
    if (i != kIdle && i != kWaiting) counters.busy += cpu[i];
  }
  counters.memory_total = kibibytes(meminfo, "MemTotal:");
  counters.memory_used = std::max(counters.memory_total - kibibytes(meminfo, "MemAvailable:"), 0.0);
  const std::vector<uint64_t> fields = fields_of_process(self_stat);
  constexpr size_t kUser = 14 - 4, kSystem = 15 - 4, kResident = 24 - 4;
  counters.process = field(fields, kUser) + field(fields, kSystem);
  counters.resident =
      static_cast<double>(field(fields, kResident)) * static_cast<double>(page_bytes);
  return counters;
}

HostCounters read_counters(const std::filesystem::path& proc) {
  return parse_counters(text_of(proc / "stat"), text_of(proc / "meminfo"),
                        text_of(proc / "self/stat"), ::sysconf(_SC_PAGESIZE));
}

HostLoad load_between(const HostCounters& before, const HostCounters& now, double seconds,
                      int64_t ticks_per_s) {
  HostLoad load;
  if (now.ticks > before.ticks && now.busy >= before.busy) {
    const auto busy = static_cast<double>(now.busy - before.busy);
    // Ticks of waiting may be taken back, so that more than all are busy.
    load.cpu = std::min(100 * busy / static_cast<double>(now.ticks - before.ticks), 100.0);
  }
  if (seconds > 0 && now.process >= before.process) {
    load.process = 100 * static_cast<double>(now.process - before.process) /
                   (seconds * static_cast<double>(ticks_per_s));
  }
  return load;
}

int64_t ticks_per_second() { return ::sysconf(_SC_CLK_TCK); }

double process_age_s(const std::filesystem::path& proc) {
  constexpr size_t kStarted = 22 - 4;  // ticks since the host was started
  const uint64_t started = field(fields_of_process(text_of(proc / "self/stat")), kStarted);
  const double up = std::atof(text_of(proc / "uptime").c_str());
  const double age = up - static_cast<double>(started) / static_cast<double>(ticks_per_second());
  return started == 0 ? 0 : std::max(age, 0.0);
}

namespace {

namespace fs = std::filesystem;
using Number = HostActivity::Number;

void add(Number& sum, double value) { sum = sum.value_or(0) + value; }

Number first_of(const std::vector<uint64_t>& numbers, double unit) {
  return numbers.empty() ? Number() : unit * static_cast<double>(numbers[0]);
}

// Of cards that have a device: what a VLAN, a bond or a bridge carries counts at a card, too. Where
// none has one, as in a container, of all but the loopback.
void read_network(const fs::path& root, HostActivity& out) {
  HostActivity real;
  std::istringstream lines(proc::text_of(root / "proc/net/dev"));
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == line.npos) continue;  // the head
    std::string card;
    std::istringstream(line.substr(0, colon)) >> card;
    if (card == "lo") continue;
    const auto numbers = proc::numbers_in(std::string_view(line).substr(colon + 1));
    constexpr size_t kSent = 8;  // behind eight numbers of what was received
    if (numbers.size() <= kSent) continue;
    std::error_code none;
    const bool is_real = fs::exists(root / "sys/class/net" / card / "device", none);
    HostActivity& sums = is_real ? real : out;
    add(sums.received, static_cast<double>(numbers[0]));
    add(sums.sent, static_cast<double>(numbers[kSent]));
  }
  if (!real.received) return;
  out.received = real.received;
  out.sent = real.sent;
}

void read_infiniband(const fs::path& root, HostActivity& out) {
  constexpr double kBytes = 4;  // the counters count words of them
  std::error_code none;
  for (const auto& card : fs::directory_iterator(root / "sys/class/infiniband", none)) {
    for (const auto& port : fs::directory_iterator(card.path() / "ports", none)) {
      const auto count = [&](const char* name, Number& sum) {
        const std::string words = proc::text_of(port.path() / "counters" / name);
        if (const Number bytes = first_of(proc::numbers_in(words), kBytes)) add(sum, *bytes);
      };
      count("port_rcv_data", out.infiniband_received);
      count("port_xmit_data", out.infiniband_sent);
    }
  }
}

// "Tcp: NAME NAME ..." and below it "Tcp: 1 2 ...".
Number retransmitted(const std::string& snmp) {
  std::istringstream lines(snmp);
  for (std::string names; std::getline(lines, names);) {
    if (!names.starts_with("Tcp: ")) continue;
    std::string values;
    std::getline(lines, values);
    std::istringstream name_words(names), value_words(values);
    for (std::string name, value; name_words >> name && value_words >> value;) {
      if (name == "RetransSegs") return first_of(proc::numbers_in(value), 1);
    }
    break;
  }
  return {};
}

void read_disk(const fs::path& root, DiskNumber disk, HostActivity& out) {
  constexpr double kSector = 512;  // bytes, of any disk
  std::istringstream lines(proc::text_of(root / "proc/diskstats"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    DiskNumber number;
    std::string name;
    // reads, merged, sectors, ms; writes, merged, sectors
    double reads = 0, merged = 0, sectors_read = 0, ms = 0, writes = 0, sectors_written = 0;
    words >> number.major >> number.minor >> name;
    if (number.major != disk.major || number.minor != disk.minor) continue;
    words >> reads >> merged >> sectors_read >> ms >> writes >> merged >> sectors_written;
    if (!words) return;
    out.read = kSector * sectors_read;
    out.written = kSector * sectors_written;
    return;
  }
}

// "some avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS"
Number stalled(const std::string& pressure) {
  const size_t total = pressure.find("total=");
  if (!pressure.starts_with("some ") || total == pressure.npos) return {};
  return first_of(proc::numbers_in(std::string_view(pressure).substr(total + 6)), 1e-6);
}

void read_memory(const fs::path& root, HostActivity& out) {
  const std::string text = proc::text_of(root / "proc/meminfo");
  const auto bytes = [&](std::string_view name) {
    return first_of(proc::numbers_of_line(text, name), 1024);
  };
  out.memory_available = bytes("MemAvailable:");
  const Number total = bytes("SwapTotal:"), free = bytes("SwapFree:");
  if (total && free) out.swap_used = *total - *free;
}

}  // namespace

DiskNumber disk_of(const fs::path& file) {
  struct ::stat status = {};
  if (::stat(file.c_str(), &status) != 0) return {};
  return {major(status.st_dev), minor(status.st_dev)};
}

HostActivity read_host_activity(DiskNumber disk, const fs::path& root) {
  HostActivity out;
  read_network(root, out);
  read_infiniband(root, out);
  out.retransmitted = retransmitted(proc::text_of(root / "proc/net/snmp"));
  read_disk(root, disk, out);
  out.cpu_stalled = stalled(proc::text_of(root / "proc/pressure/cpu"));
  out.memory_stalled = stalled(proc::text_of(root / "proc/pressure/memory"));
  out.io_stalled = stalled(proc::text_of(root / "proc/pressure/io"));
  double load = 0;
  if (std::istringstream(proc::text_of(root / "proc/loadavg")) >> load) out.load = load;
  read_memory(root, out);
  return out;
}

std::map<std::string, int> numa_nodes_of_gpus(const std::filesystem::path& root) {
  std::map<std::string, int> nodes;
  std::error_code absent;
  const std::filesystem::path driver = root / "sys/bus/pci/drivers/nvidia";
  for (const auto& entry : std::filesystem::directory_iterator(driver, absent)) {
    const std::filesystem::path file = entry.path() / "numa_node";
    if (is_there(file)) nodes[entry.path().filename()] = std::atoi(read_file(file).c_str());
  }
  return nodes;
}

bool may_use_gpu(const char* visible, const std::filesystem::path& root) {
  // CUDA takes the GPUs that are named before the first name of none: "", "-1", "NoDevFiles".
  const std::string_view first = visible ? visible : "0";
  if (first.find_first_of("0123456789") != 0 && !first.starts_with("GPU-") &&
      !first.starts_with("MIG-")) {
    return false;
  }
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(root / "dev", absent)) {
    const std::string name = entry.path().filename();  // nvidia0, but not nvidiactl
    if (name.starts_with("nvidia") && name.size() > 6 &&
        name.find_first_not_of("0123456789", 6) == name.npos &&
        ::access(entry.path().c_str(), R_OK | W_OK) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace fsdp::tools
