// fsdp status: whether a run lives, where, and how far it is. Read next: tools/report/run_status.h.
#include "tools/launch/status.h"

#include <cstdio>

#include <fmt/format.h>

#include "tools/commands/commands.h"
#include "tools/launch/launch.h"
#include "tools/report/run_status.h"

namespace fsdp::tools {
namespace {

struct StatusOptions {
  std::vector<std::string> runs;
  bool json = false;
};

int print_status(const StatusOptions& options) {
  check_one_process("status");
  const double now = unix_time();
  int result = status::kDone;
  for (const std::string& run : options.runs) {
    try {
      const RunStatus status = read_run_status(run, now);
      fmt::print("{}", options.json ? to_json(status).dump({.replace = true}) + "\n"
                                    : describe(status, now));
    } catch (const Error& error) {  // the other runs may be well
      if (options.json) {
        const Json line = {{"run_directory", run}, {"error", error.what()}};
        fmt::print("{}\n", line.dump({.replace = true}));
      }
      std::fflush(stdout);
      fmt::print(stderr, "fsdp: {}\n", error.what());
      result = status::kFailed;
    }
  }
  return result;
}

}  // namespace

void add_status_command(const Command& app) {
  const auto options = std::make_shared<StatusOptions>();
  const Command command = app.add_command("status");
  command.add({{"runs", &options->runs}, {"--json", &options->json}});
  command.runs(options, print_status);
}

}  // namespace fsdp::tools
