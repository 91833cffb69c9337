// Figures of data sheets. Contract: tools/predict/nominal_gpus.h.
#include "tools/predict/nominal_gpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace fsdp::tools {

// The V100 has no bf16, and is too old for kernels/cuda: its rows are for its memory.
const std::vector<NominalGpu>& nominal_gpus() {
  static const std::vector<NominalGpu> kGpus = {
      {"V100-16", "a V100 16 GB", 15.77, 125, 15.7, 7.8, 900, 150, 12.5, 12},
      {"V100-32", "a V100 32 GB", 31.74, 125, 15.7, 7.8, 900, 150, 12.5, 12},
      {"L40", "an L40", 44.40, 181, 90.5, 1.4, 864, 32, 25, 25},
      {"A100-40", "an A100 40 GB", 39.38, 312, 19.5, 9.7, 1555, 300, 25, 25},
      {"A100-80", "an A100 80 GB", 79.15, 312, 19.5, 9.7, 2039, 300, 25, 25},
      {"H100", "an H100", 79.11, 989, 67, 34, 3350, 450, 50, 50},
      {"H200", "an H200", 139.80, 989, 67, 34, 4800, 450, 50, 50},
      {"B200", "a B200", 178.35, 2250, 75, 37, 8000, 900, 50, 50},
  };
  return kGpus;
}

const NominalGpu& nominal_gpu(const std::string& name) {
  std::vector<std::string> names;
  for (const NominalGpu& gpu : nominal_gpus()) {
    if (gpu.name == name) return gpu;
    names.push_back(gpu.name);
  }
  fail("gpu: expected one of {}, got \"{}\"", fmt::join(names, ", "), name);
}

// Programs reach about 60 % of the products, 80 % of the memory and 75 % of the links. The disk is
// assumed: an NVMe drive in each machine. The host: an eighth of the memory's rate of two EPYC of
// the A100's time (2 x 204.8 GB/s).
Rates nominal_rates(const std::string& name) {
  const NominalGpu& gpu = nominal_gpu(name);
  return {.machine = gpu.full_name + ", eight in a machine",
          .flops_per_s = {{DType::kF32, 0.6e12 * gpu.tflops_f32},
                          {DType::kBF16, 0.6e12 * gpu.tflops_16},
                          {DType::kF16, 0.6e12 * gpu.tflops_16},
                          {DType::kF64, 0.6e12 * gpu.tflops_f64}},
          .memory_bytes_per_s = 0.8e9 * gpu.memory_gb_per_s,
          .kernel_us = 3,
          .issue_us = 5,
          .ranks_per_node = 8,
          .inside_node = {.latency_us = 20, .bytes_per_s = 0.75e9 * gpu.link_gb_per_s},
          .between_nodes = {.latency_us = 50, .bytes_per_s = 0.75e9 * gpu.node_gb_per_s},
          .host_copy = {.latency_us = 10, .bytes_per_s = 1e9 * gpu.host_gb_per_s},
          .disk_read = {.latency_us = 100, .bytes_per_s = 5e9},
          .disk_write = {.latency_us = 100, .bytes_per_s = 2.5e9},
          .host_memory_bytes_per_s = 0.8 * 409.6e9 / 8,
          .kernels = {}};
}

Rates nominal_rates() { return nominal_rates("A100-80"); }

}  // namespace fsdp::tools
