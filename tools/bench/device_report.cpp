// The CPU as Linux tells it, a GPU as its driver does.
#include "tools/bench/device_report.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include <unistd.h>

#include "kernels/cuda/device_sensors.h"
#include "tools/launch/host_load.h"

namespace fsdp::tools {
namespace {

constexpr size_t kUnknownCache = size_t{32} << 20;  // where the machine hides it

DeviceReport report_cpu(int threads) {
  const CpuInfo info = parse_cpuinfo(proc::text_of("/proc/cpuinfo"));
  const size_t cache = last_caches("/sys/devices/system/cpu");
  DeviceReport report;
  report.backend = "cpu";
  report.name = info.name;
  report.threads = threads;
  report.cache_bytes = cache > 0 ? cache : kUnknownCache;
  report.clock_mhz = info.clock_mhz;
  return report;
}

DeviceReport report_gpu(const cuda::CudaOptions& options) {
  const cuda::DeviceSensors sensors = cuda::read_sensors(options.device);
  DeviceReport report;
  report.backend = "cuda";
  report.name = sensors.name;
  report.tf32 = options.tf32;
  report.cache_bytes = sensors.cache_bytes;
  report.clock_mhz = sensors.clock_mhz;
  report.memory_clock_mhz = sensors.memory_clock_mhz;
  report.power_w = sensors.power_w;
  return report;
}

}  // namespace

DeviceReport report_device(const Backend& backend, const BackendOptions& options) {
  return backend.name() == "cuda" ? report_gpu(*options.cuda) : report_cpu(options.cpu.threads);
}

size_t last_caches(const std::filesystem::path& cpus) {
  std::set<std::string> seen;  // the CPUs that share one
  size_t bytes = 0;
  std::error_code missing;
  for (int cpu = 0;; ++cpu) {
    const std::filesystem::path folder = cpus / fmt::format("cpu{}", cpu) / "cache";
    if (!std::filesystem::exists(folder, missing)) return bytes;
    std::filesystem::path last;
    int level = 0;
    for (const auto& each : std::filesystem::directory_iterator(folder, missing)) {
      const int its = std::atoi(proc::first_line_of(each.path() / "level").c_str());
      if (its > level) last = each.path(), level = its;
    }
    if (last.empty() || !seen.insert(proc::first_line_of(last / "shared_cpu_list")).second)
      continue;
    const std::string size = proc::first_line_of(last / "size");  // "32768K"
    const size_t unit = size.ends_with('K') ? 1u << 10 : size.ends_with('M') ? 1u << 20 : 1u;
    bytes += static_cast<size_t>(std::atoll(size.c_str())) * unit;
  }
}

}  // namespace fsdp::tools
