// Parses the command line of the program. Not here: what the commands do (tools/commands).
#pragma once

#include <string>

#include "tools/commands/commands.h"

namespace fsdp::tools {

struct CommandLine {
  ChosenCommand command;  // empty: nothing to run (help, version, or a mistake)
  int status = 0;         // then the program's exit status
  std::string message;    // then what to print
};

CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace fsdp::tools
