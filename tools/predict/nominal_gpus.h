// NVIDIA's GPUs by name: what their data sheets say, and the rates that programs reach with them.
// Not here: rates that were measured (rates_file.h).
#pragma once

#include <string>
#include <vector>

#include "tools/predict/call_rates.h"

namespace fsdp::tools {

struct NominalGpu {
  std::string name;       // "A100-80"
  std::string full_name;  // "an A100 80 GB"
  double gib;             // that CUDA says the device has: less than the name
  // Dense products, TFLOP/s.
  double tflops_16, tflops_f32, tflops_f64;
  double memory_gb_per_s;
  double link_gb_per_s;  // each way to the others of a machine: NVLink, or PCIe where there is none
  double node_gb_per_s;  // of the GPU's link to other machines, of its time
  double host_gb_per_s;  // PCIe, as programs reach it
};

const std::vector<NominalGpu>& nominal_gpus();
// Error for others, with the names that there are.
const NominalGpu& nominal_gpu(const std::string& name);

// Of such a GPU in a machine of eight.
Rates nominal_rates(const std::string& gpu);
// Of an A100 80 GB: where nobody says what the run is for.
Rates nominal_rates();

}  // namespace fsdp::tools
