// What computes for the ranks, in a line each, before they begin: as nvidia-smi shows a GPU, and
// for ranks that compute on the CPU one line for each host.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "kernels/cuda/device_sensors.h"
#include "tools/launch/host_load.h"

namespace fsdp::tools {

std::string cpu_name();         // of this host's processors
std::string gpu_name(int gpu);  // as CUDA numbers it
// "NVIDIA H100 80GB HBM3, 0.5 of 79.6 GiB in use, 3 % busy", as far as it is known
std::string describe_gpu(const std::string& name, const cuda::DeviceLoad& load);
// "A CPU @ 3 GHz, 8 cores, 3.1 of 15.6 GiB of RAM in use"
std::string describe_cpu(const std::string& name, int cores, const HostCounters& counters);
// `gpu`: this rank's, as CUDA numbers it; none: the CPU computes. The same on every rank.
// Collective.
std::vector<std::string> device_snapshot(comm::Communicator& world, std::optional<int> gpu);

// What a rank says of itself when it starts: "rank 3 on node7: GPU 1, process 4242",
// "rank 3 on node7: CPU, 2 threads, process 4242".
std::string describe_rank(int rank, std::optional<int> gpu, int threads);

}  // namespace fsdp::tools
