// Whether this host has GPUs, and the NUMA node of each, as Linux knows the devices of NVIDIA's
// driver. Not here: the GPUs that CUDA shows this process (kernels/cuda/cuda_devices.h).
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace fsdp::tools {

// By PCI address, "0000:3b:00.0"; -1: the machine does not say. `root`: where /sys is.
std::map<std::string, int> numa_nodes_of_gpus(const std::filesystem::path& root = "/");

// Whether this process may use a GPU here, if its program can. `visible`: CUDA_VISIBLE_DEVICES;
// null: not set. Not where this hides all GPUs, nor where a control group does, as that of a Slurm
// job that was given none: then the files of the driver are there but cannot be opened. `root`:
// where /dev is.
bool may_use_gpu(const char* visible, const std::filesystem::path& root = "/");

}  // namespace fsdp::tools
