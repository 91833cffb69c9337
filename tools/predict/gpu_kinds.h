// GPUs by the names that people and nvidia-smi give them, and what their data sheets say. A GPU
// without a file of rates of its own has the rates of another one, by its data sheet's shares: its
// times were never compared with a measurement. The table: machines/gpus.json.
// Read next: machines.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"

namespace fsdp::tools {

// Those that have no file of their own.
std::vector<std::string> gpus_in_table();

// "RTX-4090" of "NVIDIA GeForce RTX 4090", "rtx4090", "RTX 4090 24GB", "gpu:rtx_4090:8"; of a name
// in `others` the name itself. "": no kind, or one of several: "A100" has 40 or 80 GB.
std::string gpu_named(std::string_view given, const std::vector<std::string>& others);
// "A100-40, A100-80": which of these names may be meant; "": none is near.
std::string nearest_gpus(std::string_view given, const std::vector<std::string>& names);

// The file of rates of a kind that has none: a "like" file (rates_file.h). None for other names.
std::optional<Json> gpu_rates_file(std::string_view name);

}  // namespace fsdp::tools
