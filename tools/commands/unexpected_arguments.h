// What to say about arguments that no option takes: which, and what was probably meant.
#pragma once

#include <string>
#include <vector>

namespace fsdp::tools {

// The command that the arguments name.
struct NamedCommand {
  std::string path;                  // "bench step"
  std::vector<std::string> options;  // "--batch"
};

// One line. `extras`: what the command could not place, in order; not empty.
std::string unexpected_arguments(const NamedCommand& command,
                                 const std::vector<std::string>& extras);

}  // namespace fsdp::tools
