// What to say about arguments that no option takes, and options that lack a value: which, and what
// was probably meant.
#pragma once

#include <string>
#include <vector>

namespace fsdp::tools {

// The command that the arguments name.
struct NamedCommand {
  std::string path;                     // "bench step"
  std::vector<std::string> options;     // "--batch"
  std::vector<std::string> with_value;  // the options that need a value
};

// One line. `extras`: what the command could not place, in order; not empty.
std::string unexpected_arguments(const NamedCommand& command,
                                 const std::vector<std::string>& extras);

// One line, or "". `arguments`: what follows the command's name. An option's name is no value: a
// text that looks like one is given as --prompt=--steps.
std::string forgotten_value(const NamedCommand& command, const std::vector<std::string>& arguments);

}  // namespace fsdp::tools
