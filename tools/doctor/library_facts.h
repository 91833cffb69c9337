// What this process finds of GPUs, of the libraries that serve them, of MPI, and of the launchers
// beside it. Not here: what is wrong with that (library_checks.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi_library.h"
#include "kernels/cuda/installation.h"

namespace fsdp::tools::doctor {

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

// ---- for tests ----
// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  ..." of /proc/driver/nvidia/version
std::string driver_version(const std::string& text);

}  // namespace fsdp::tools::doctor
