// Contract: tools/predict/machines.h.
#include "tools/predict/machines.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "core/error.h"
#include "core/io/json.h"
#include "tools/predict/machine_files.h"
#include "tools/predict/rates_file.h"

namespace fsdp::tools {

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const MachineFile& file : machine_files()) names.emplace_back(file.name);
  return names;
}

bool is_machine(std::string_view name) {
  const std::vector<std::string> names = machine_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

Rates machine_rates(std::string_view name) {
  FSDP_CHECK(is_machine(name), "machine: expected one of {}, got \"{}\"",
             fmt::join(machine_names(), ", "), name);
  return rates_of_json({{"like", std::string(name)}}, "machine");
}

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  for (const std::string& name : machine_names()) {
    if (machine_rates(name).device_gib > 0) names.push_back(name);
  }
  return names;
}

}  // namespace fsdp::tools
