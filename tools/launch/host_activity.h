// What this host sends, receives, reads and waits for, all of its processes together, as Linux
// counts it. Not here: its processors and this process on them (host_load.h), GPUs
// (kernels/cuda/device_sensors.h).
#pragma once

#include <filesystem>
#include <optional>

namespace fsdp::tools {

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

}  // namespace fsdp::tools
