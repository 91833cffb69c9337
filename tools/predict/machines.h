// Machines that the program knows by name: GPUs in nodes of eight, and a CPU. Their numbers stand
// in tools/predict/machines, each with its source; of most GPUs in a table (gpu_kinds.h). A name
// may stand wherever a file of rates may; a file may begin with one ("like"). Not here: the format
// (rates_file.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/predict/rates.h"

namespace fsdp::tools {

// Where nobody says what the run is for.
constexpr const char* kUsualMachine = "A100-80";

std::vector<std::string> machine_names();
// Also by its other names: gpu_kinds.h.
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

}  // namespace fsdp::tools
