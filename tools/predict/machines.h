// Machines that the program knows by name: GPUs in nodes of eight, and a CPU. Their numbers stand
// in tools/predict/machines, each with its source; of most GPUs in a table. A name
// may stand wherever a file of rates may; a file may begin with one ("like"). Not here: the format
// (rates_file.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "tools/predict/rates.h"

namespace fsdp::tools {

// Where nobody says what the run is for.
constexpr const char* kUsualMachine = "A100-80";

std::vector<std::string> machine_names();
// Also by its other names.
bool is_machine(std::string_view name);
// The machine's own name, "RTX-4090" of "rtx 4090"; what is no machine stays as it is.
std::string machine_named(std::string_view given);
// What is wrong with the name of a machine or a size, with the names that there are; "": nothing.
std::string wrong_machine(const std::string& given);
// "48GiB"; none: no size with a unit.
std::optional<size_t> size_of_gpu(std::string_view given);
// Error for others. Of a size: those of kUsualMachine, of which only the memory means something.
Rates machine_rates(std::string_view given);
// Error where a size was given in the place of a machine.
void check_has_times(const Rates& rates);

// ---- GPUs by the names that people and nvidia-smi give them, and what their data sheets say. A
// GPU without a file of rates of its own has the rates of another one, by its data sheet's shares:
// its times were never compared with a measurement. The table: machines/gpus.json.

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
