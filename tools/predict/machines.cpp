// Contract: tools/predict/machines.h.
#include "tools/predict/machines.h"

#include <cctype>

#include <fmt/ranges.h>

#include "core/error.h"
#include "core/io/json.h"
#include "core/text/byte_size.h"
#include "tools/predict/gpu_kinds.h"
#include "tools/predict/machine_files.h"
#include "tools/predict/rates_file.h"

namespace fsdp::tools {

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const MachineFile& file : machine_files()) names.emplace_back(file.name);
  for (std::string& name : gpus_in_table()) names.push_back(std::move(name));
  return names;
}

bool is_machine(std::string_view name) { return !gpu_named(name, machine_names()).empty(); }

std::string machine_named(std::string_view given) {
  const std::string name = gpu_named(given, machine_names());
  return name.empty() ? std::string(given) : name;
}

std::string wrong_machine(const std::string& given) {
  if (is_machine(given) || size_of_gpu(given)) return "";
  const std::vector<std::string> names = machine_names();
  const std::string near = nearest_gpus(given, names);
  return fmt::format("expected one of {}, or a size of memory such as 48GiB; got \"{}\"{}",
                     fmt::join(names, ", "), given, near.empty() ? "" : "; near: " + near);
}

std::optional<size_t> size_of_gpu(std::string_view given) {
  const bool has_unit = !given.empty() && std::isalpha(static_cast<unsigned char>(given.back()));
  const auto bytes = has_unit ? read_byte_size(std::string(given)) : std::nullopt;
  return bytes ? std::optional(static_cast<size_t>(*bytes)) : std::nullopt;
}

Rates machine_rates(std::string_view given) {
  const std::string wrong = wrong_machine(std::string(given));
  FSDP_CHECK(wrong.empty(), "machine: {}", wrong);
  if (is_machine(given)) return rates_of_json({{"like", std::string(given)}}, "machine");
  Rates rates = machine_rates(kUsualMachine);
  rates.memory_only = true;
  rates.note.clear();  // of times
  rates.machine = fmt::format("a GPU of {}", given);
  rates.device_gib = static_cast<double>(*size_of_gpu(given)) / (size_t{1} << 30);
  return rates;
}

void check_has_times(const Rates& rates) {
  FSDP_CHECK(
      !rates.memory_only,
      "{}: its memory alone is known, and no time: --rates NAME takes the times of a machine",
      rates.machine);
}

}  // namespace fsdp::tools
