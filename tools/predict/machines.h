// Machines that the program knows by name: GPUs in nodes of eight, and a CPU. Their numbers stand
// in tools/predict/machines, each with its source. A name may stand wherever a file of rates may; a
// file may begin with one ("like"). Not here: the format (rates_file.h).
#pragma once

#include "tools/predict/rates.h"

namespace fsdp::tools {

// Where nobody says what the run is for.
constexpr const char* kUsualMachine = "A100-80";

std::vector<std::string> machine_names();
bool is_machine(std::string_view name);
// Error for others, with the names that there are.
Rates machine_rates(std::string_view name);
// Of which the memory is known.
std::vector<std::string> gpu_names();

}  // namespace fsdp::tools
