// What `fsdp memory` says of a configuration: the peak by category and place, its moment, what lies
// there, alternatives, and whether a device has as much. As text and as JSON.
// Not here: the numbers themselves (memory_changes.h, tools/predict/meta_run.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/memory/memory_changes.h"

namespace fsdp::tools {

// The memory of a device, and the part that CUDA and NCCL take.
struct DeviceMemory {
  std::string name;
  size_t bytes = 0;
  size_t context = 0;  // of CUDA and its libraries
  size_t nccl = 0;
  size_t left() const { return bytes - std::min(bytes, context + nccl); }
};
// "A100-80". Error for others, with the names that there are.
DeviceMemory gpu_memory(const std::string& name, int ranks);
std::vector<std::string> gpu_names();

struct MemoryView {
  std::string model;  // in a line
  PlannedRun planned;
  std::vector<Alternative> alternatives;
  std::optional<DeviceMemory> device;
  size_t fit = 0;  // bytes; 0: not asked for
  std::optional<FittingChanges> fitting;
  std::string machine;  // of the milliseconds
};

// Without a device. `on_gpu`: no kernel takes scratch of the CPU's. `fit`: as in MemoryView.
// `rates_file`: what calls take; "": nominal GPUs.
MemoryView view_memory(const config::TrainConfig& config, int ranks, bool on_gpu, size_t fit,
                       const std::string& rates_file);

std::string format_memory_view(const MemoryView& view);
Json memory_json(const MemoryView& view);

}  // namespace fsdp::tools
