// What the processors and the memory of this host are doing, and this process on them, as Linux
// says in /proc. Not here: how much memory there may be (available_memory.h), GPUs
// (kernels/cuda/device_sensors.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace fsdp::tools {

struct CpuInfo {
  std::string name;
  std::optional<double> clock_mhz;  // of the core that runs fastest
};
CpuInfo parse_cpuinfo(const std::string& text);  // of /proc/cpuinfo

// Counters at one moment. Ticks: the system's, 10 ms.
struct HostCounters {
  uint64_t busy = 0, ticks = 0;  // of all cores together, since the host was started
  uint64_t process = 0;          // ticks that this process has computed
  double resident = 0;           // bytes of this process
  double memory_used = 0;        // bytes of the host: what no new process could have
  double memory_total = 0;       // bytes of the host
};
// The texts are /proc/stat, /proc/meminfo and /proc/self/stat. Zeros where they do not say.
HostCounters parse_counters(std::string_view stat, std::string_view meminfo,
                            std::string_view self_stat, int64_t page_bytes);
HostCounters read_counters(const std::filesystem::path& proc = "/proc");

// Between two moments.
struct HostLoad {
  std::optional<double> cpu;      // %, of all cores; none: no tick has passed
  std::optional<double> process;  // %, of one core: 100 for each thread that always computes
};
HostLoad load_between(const HostCounters& before, const HostCounters& now, double seconds,
                      int64_t ticks_per_s);
int64_t ticks_per_second();  // of this system

// How long ago this process was started, in seconds; 0 where /proc does not say.
double process_age_s(const std::filesystem::path& proc = "/proc");

}  // namespace fsdp::tools
