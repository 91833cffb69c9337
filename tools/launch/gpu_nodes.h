// Where the GPUs of this host are: the NUMA node of each, as Linux knows the devices of NVIDIA's
// driver. Not here: the GPUs that CUDA shows this process (kernels/cuda/cuda_devices.h).
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace fsdp::tools {

// By PCI address, "0000:3b:00.0"; -1: the machine does not say. `root`: where /sys is.
std::map<std::string, int> numa_nodes_of_gpus(const std::filesystem::path& root = "/");

}  // namespace fsdp::tools
