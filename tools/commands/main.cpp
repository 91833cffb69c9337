// The program `fsdp`. Everything that fails ends here or, once ranks are running, in
// tools/launch/launch.cpp, which ends them together. Read next: tools/commands/command_line.cpp.
#include <cstdio>
#include <exception>

#include "tools/commands/command_line.h"
#include "tools/launch/interrupt.h"
#include "tools/launch/launch.h"

namespace {

// The status: a result that did not reach its file (a full disk) is no success.
int check_output(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  fsdp::tools::report_error("standard output cannot be written: the disk is full or it was closed");
  return status == 0 ? 1 : status;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace fsdp::tools;
  name_bus_errors();
  name_size_limits();
  try {
    const CommandLine line = parse_command_line(argc, argv);
    if (line.command) return check_output(line.command());
    if (line.status == 0) {
      std::fputs(line.message.c_str(), stdout);
    } else {
      report_error(line.message);
    }
    return check_output(line.status);
  } catch (const std::exception& error) {
    report_error(message_of(error));
    return 1;
  }
}
