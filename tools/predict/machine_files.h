// The files of tools/predict/machines as texts, in the order of tools/cmake/EmbeddedFiles.cmake,
// which writes their definition when the program is built. What they say: machines.h.
#pragma once

#include <string_view>
#include <vector>

namespace fsdp::tools {

struct MachineFile {
  std::string_view name;  // "H100"
  std::string_view text;  // a file of rates
};
std::vector<MachineFile> machine_files();
// machines/gpus.json: machines.h.
std::string_view gpu_table();
// machines/programs.json: tools/plan/other_programs.h.
std::string_view program_table();
// formulas/published.json: formulas/formula.h.
std::string_view published_formulas();

}  // namespace fsdp::tools
