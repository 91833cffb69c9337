// Lines of all ranks; of hosts that several ranks share, one.
#include "tools/report/device_snapshot.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>

#include "comm/exchange.h"
#include "tools/launch/backend_choice.h"

namespace fsdp::tools {
namespace {

constexpr double kGiB = 1 << 30;

}  // namespace

std::string cpu_name() {
  std::ostringstream text;
  text << std::ifstream("/proc/cpuinfo").rdbuf();
  return parse_cpuinfo(text.str()).name;
}

std::string gpu_name(int gpu) { return cuda::read_sensors(gpu).name; }

std::string describe_gpu(const std::string& name, const cuda::DeviceLoad& load) {
  std::string text = name;
  if (load.memory_used && load.memory_total) {
    text += fmt::format(", {:.1f} of {:.1f} GiB in use", *load.memory_used / kGiB,
                        *load.memory_total / kGiB);
  }
  if (load.utilisation) text += fmt::format(", {:.0f} % busy", *load.utilisation);
  return text;
}

std::string describe_cpu(const std::string& name, int cores, const HostCounters& counters) {
  return fmt::format("{}, {} core{}, {:.1f} of {:.1f} GiB of RAM in use", name, cores,
                     cores == 1 ? "" : "s", counters.memory_used / kGiB,
                     counters.memory_total / kGiB);
}

std::vector<std::string> device_snapshot(comm::Communicator& world, std::optional<int> gpu) {
  std::vector<std::string> mine = {host_name()};
  if (gpu) {
    const cuda::DeviceMonitor monitor(*gpu);
    mine.push_back(describe_gpu(monitor.name(), monitor.read()));
  } else {
    mine.push_back(describe_cpu(cpu_name(), static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)),
                                read_counters()));
  }
  mine.push_back(gpu ? "GPU" : "CPU");
  std::vector<std::string> lines, hosts;
  int rank = 0;
  for (const std::vector<std::string>& each : comm::exchange_texts(world, mine)) {
    const std::string& host = each[0];
    if (each[2] == "GPU") {
      lines.push_back(fmt::format("rank {} on {}: {}", rank, host, each[1]));
    } else if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) {
      hosts.push_back(host);
      lines.push_back(fmt::format("{}: {}", host, each[1]));
    }
    ++rank;
  }
  return lines;
}

std::string describe_rank(int rank, std::optional<int> gpu, int threads) {
  const std::string device =
      gpu ? fmt::format("GPU {}", *gpu)
          : fmt::format("CPU, {} thread{}", threads, threads == 1 ? "" : "s");
  return fmt::format("rank {} on {}: {}, process {}", rank, host_name(), device, ::getpid());
}

}  // namespace fsdp::tools
