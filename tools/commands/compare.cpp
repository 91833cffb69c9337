// fsdp compare: what a knob changed between runs. Read next: tools/report/compare_runs.h.
#include <cstdio>

#include "tools/commands/commands.h"
#include "tools/launch/launch.h"
#include "tools/report/compare_runs.h"

namespace fsdp::tools {

void add_compare_command(const Command& app, ChosenCommand& chosen) {
  const auto runs = std::make_shared<std::vector<std::string>>();
  const Command command = app.add_command(
      "compare", "run directories side by side: settings, loss, speed, bytes, memory");
  command
      .add_option("runs", *runs,
                  "two run directories or more; the first is what the others are compared with")
      .required()
      .path()
      .expected(2, 1000);
  command.when_chosen([&chosen, runs] {
    chosen = [runs] {
      check_one_process("compare");
      std::fputs(compare_runs({runs->begin(), runs->end()}).c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace fsdp::tools
