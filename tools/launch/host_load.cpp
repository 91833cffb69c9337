// Reading of /proc; proc(5) names the fields.
#include "tools/launch/host_load.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <vector>

#include <unistd.h>

#include "tools/launch/proc_text.h"

namespace fsdp::tools {
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

}  // namespace fsdp::tools
