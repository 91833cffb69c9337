// What Linux says about a host and the limits of this process, in /proc, /sys and /dev/shm.
// Not here: what is wrong with that (host_checks.h), GPUs and libraries (library_facts.h), a shared
// folder (shared_folder.h).
#pragma once

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tools/launch/host_limits.h"

namespace fsdp::tools::doctor {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// `ulimit`: what a process has, and up to what it may ask for more.
struct Limit {
  double soft = kNoLimit;
  double hard = kNoLimit;
};

struct Space {  // bytes
  double size = 0;
  double free = 0;
};

struct Card {
  std::string name;  // "eth0"; of InfiniBand or RoCE "mlx5_0 port 1"
  bool up = false;
  double gbit = 0;      // a second; 0: the driver does not say
  std::string state{};  // of InfiniBand: "ACTIVE", "INIT", "DOWN"
};

struct CpuFacts {
  std::string name;
  int cores = 0;  // on which this process may run
  int of_host = 0;
  std::string governor;    // "": nobody governs the clock, as in a virtual machine
  double most_khz = 0;     // of the hardware; 0: not known
  double allowed_khz = 0;  // by whoever administers the host
};

struct HostFacts {
  CpuFacts cpu;
  int numa_nodes = 0;
  CpuQuota quota;
  AvailableMemory memory;
  double threads_left = kNoLimit;      // to the control group
  Limit open_files, locked_memory;     // bytes
  Limit addresses;                     // bytes: ulimit -v
  Limit processes;                     // and threads, of this user; none for root
  std::optional<Space> shared_memory;  // /dev/shm; none: it is no file system of its own
  std::vector<Card> cards;
  std::vector<Card> rdma_ports;
};
// `root`: where /proc, /sys and /dev are found.
HostFacts read_host_facts(const std::filesystem::path& root = "/");

}  // namespace fsdp::tools::doctor
