// The program `fsdp`. Everything that fails ends here or, once ranks are running, in
// tools/runtime/launch.cpp, which ends them together. Read next: tools/command_line.cpp.
#include <cstdio>
#include <exception>

#include "tools/command_line.h"
#include "tools/runtime/launch.h"

int main(int argc, char** argv) {
  using namespace fsdp::tools;
  try {
    const CommandLine line = parse_command_line(argc, argv);
    if (line.command) return line.command();
    if (line.status == 0) {
      std::fputs(line.message.c_str(), stdout);
    } else {
      report_error(line.message);
    }
    return line.status;
  } catch (const std::exception& error) {
    report_error(error.what());
    return 1;
  }
}
