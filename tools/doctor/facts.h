// The facts of a host: Linux's values for the host and for the limits of this process, GPUs, the
// libraries that serve them, MPI, launchers, free space. Not here: faults (checks.h), a shared
// folder (shared_folder.h).
#pragma once

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi_library.h"
#include "kernels/cuda/installation.h"
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

struct FreeSpace {
  std::filesystem::path folder;  // that is there
  double bytes = 0;              // that this user may have
  double inodes = 0;             // likewise; infinite where the file system does not count them
};
// Looks at the folder, or at the first folder above it that exists. Error when the system gives no
// numbers.
FreeSpace read_free_space(const std::filesystem::path& folder);

struct Gpu {
  std::string name;
  int numa_node = -1;  // -1: not known
  int nvlinks = 0;     // that are up
};

struct GpuFacts {
  bool cuda_built = false;  // this program has the CUDA backend
  std::string no_gpus;      // why there are none
  std::vector<Gpu> gpus;
  std::string driver;  // "535.129.03"; "": there is none
  bool hidden = true;  // no GPU's file is here, or CUDA_VISIBLE_DEVICES names none
  cuda::Installation cuda;
  std::string no_cudnn;  // why it is not there; "": it is
  int nccl = 0;          // 22603; 0: it is not there, and why
  std::string no_nccl;
};
GpuFacts read_gpu_facts(const std::filesystem::path& root = "/");

struct MpiFacts {
  comm::MpiLibrary mpi;
  std::string pmix;                 // "OpenPMIx 4.2.2"; "": MPI brings its own
  std::string mpirun;               // the first line of its --version; "": there is none
  std::string own_mpirun;           // the one beside MPI's library; "": there is none
  std::optional<std::string> srun;  // its plugin that connects ranks, or ""; none: no srun here
};
// Error where mpirun does not answer.
MpiFacts read_mpi_facts(const std::filesystem::path& root = "/");

struct SmiOutput {
  bool there = false;  // an nvidia-smi
  int status = 0;      // 0: it did what it was asked
  std::string text;    // of nvidia-smi -q -x
  std::string xids;    // lines of the kernel's log; "": none, or not to be read
};
SmiOutput ask_nvidia_smi();

// ---- for tests ----
// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  ..." of /proc/driver/nvidia/version
std::string driver_version(const std::string& text);

}  // namespace fsdp::tools::doctor
