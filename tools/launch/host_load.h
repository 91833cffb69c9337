// What this host is and does, as Linux says in /proc and /sys: its processors and memory and this
// process on them; what all of its processes together send, receive, read and wait for; the GPUs of
// NVIDIA's driver. Not here: how much memory there may be (host_limits.h), the load of GPUs
// (kernels/cuda/device_sensors.h), the GPUs that CUDA shows this process
// (kernels/cuda/cuda_devices.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::tools {

// Texts as Linux writes them, and the numbers in them.
namespace proc {
std::string text_of(const std::filesystem::path& file);        // "": it cannot be read
std::string first_line_of(const std::filesystem::path& file);  // likewise

// The numbers of a text up to the first word that is none.
std::vector<uint64_t> numbers_in(std::string_view text);
// Behind `name` on the first line that begins with it; none: there is no such line.
std::vector<uint64_t> numbers_of_line(std::string_view text, std::string_view name);
}  // namespace proc

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

// At one moment. None: the system does not say.
struct HostActivity {
  using Number = std::optional<double>;
  // Since the host was started.
  Number received, sent;                           // bytes of the network cards
  Number infiniband_received, infiniband_sent;     // bytes of all ports
  Number retransmitted;                            // segments of TCP that were sent again
  Number read, written;                            // bytes of one disk
  Number cpu_stalled, memory_stalled, io_stalled;  // seconds in which a process waited for it
  // Now.
  Number load;                         // processes that compute or wait for a disk, over a minute
  Number memory_available, swap_used;  // bytes
};

// The disk on which a file lies, by the number of its device.
struct DiskNumber {
  unsigned major = 0, minor = 0;
};
DiskNumber disk_of(const std::filesystem::path& file);  // zeros: there is no such file

// `root`: the folder that proc and sys are in. A disk that is none of the host's own, as that of a
// shared folder, has no counters.
HostActivity read_host_activity(DiskNumber disk, const std::filesystem::path& root = "/");

// By PCI address, "0000:3b:00.0"; -1: the machine does not say. `root`: where /sys is.
std::map<std::string, int> numa_nodes_of_gpus(const std::filesystem::path& root = "/");

// Whether this process may use a GPU here, if its program can. `visible`: CUDA_VISIBLE_DEVICES;
// null: not set. Not where this hides all GPUs, nor where a control group does, as that of a Slurm
// job that was given none: then the files of the driver are there but cannot be opened. `root`:
// where /dev is.
bool may_use_gpu(const char* visible, const std::filesystem::path& root = "/");

}  // namespace fsdp::tools
