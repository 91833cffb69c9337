// What `fsdp memory` says of a configuration: the peak by category and place, its moment, what lies
// there, alternatives, and whether a device has as much. As text and as JSON.
// Not here: the numbers themselves (memory_changes.h, tools/predict/meta_run.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/predict/memory_changes.h"

namespace fsdp::tools {

// What a rank may take, and the part of it that CUDA and NCCL take.
struct DeviceMemory {
  std::string name;  // in "44.40 GiB of L40"
  size_t bytes = 0;
  std::string gpu = {};  // of whose kind it is, for times; "": no GPU
  size_t context = 0;    // of CUDA and its libraries
  size_t nccl = 0;
  size_t cudnn = 0;  // more that its attention takes at the most, if there is so much
  size_t left() const { return bytes - std::min(bytes, context + nccl); }
};
// "A100-80". Error for others, with the names that there are.
DeviceMemory gpu_memory(const std::string& name, int ranks);
DeviceMemory gpu_of_size(size_t bytes, int ranks);

struct MemoryQuestion {
  int ranks = 1;
  int threads = 1;  // of a rank, where the CPU computes
  std::optional<DeviceMemory> device = std::nullopt;
  std::string rates = {};  // see RatesChoice; "": of the device's GPU, if it is one
};

struct MemoryView {
  std::string model;  // in a line
  PlannedRun planned;
  std::vector<Alternative> alternatives;
  std::optional<DeviceMemory> device;
  std::optional<FittingChanges> fitting;  // where the device has too little
  int ranks_of_node = 1;                  // that share a host and its disk
  std::string machine;                    // of the milliseconds
  bool timed = true;                      // the milliseconds mean something
  std::string machine_note;               // see Rates
};

MemoryView view_memory(const config::TrainConfig& config, const MemoryQuestion& question);

std::string format_memory_view(const MemoryView& view);
Json memory_json(const MemoryView& view);

}  // namespace fsdp::tools
