// fsdp compare: what a knob changed between runs. Read next: tools/report/compare_runs.h.
#include <cstdio>

#include "tools/commands/commands.h"
#include "tools/launch/launch.h"
#include "tools/report/compare_runs.h"

namespace fsdp::tools {
namespace {

struct CompareOptions {
  std::vector<std::string> runs, columns;
  bool markdown = false, csv = false;
};

std::string compared(const CompareOptions& options) {
  const std::vector<std::filesystem::path> folders(options.runs.begin(), options.runs.end());
  if (options.columns.empty() && !options.markdown && !options.csv) return compare_runs(folders);
  const CaseTable table = table_of_runs(folders, options.columns);
  if (options.csv) return csv_of(table);
  return options.markdown ? markdown(text_table(table)) : side_by_side(text_table(table));
}

}  // namespace

void add_compare_command(const Command& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<CompareOptions>();
  const Command command = app.add_command(
      "compare", "run directories side by side: settings, loss, speed, bytes, memory");
  command
      .add_option("runs", options->runs,
                  "two run directories or more; the first is what the others are compared with")
      .required()
      .path()
      .expected(2, 1000);
  command
      .add_option("--columns", options->columns,
                  "instead a row for each run, with these columns, with a comma between them: "
                  "s_per_step,peak_memory (tools/sweep/README.md), or paths into metrics.json")
      .one_value_each()
      .delimiter(',');
  const Option markdown =
      command.add_flag("--markdown", options->markdown, "a row for each run, as Markdown");
  command.add_flag("--csv", options->csv, "a row for each run, as CSV").excludes(markdown);
  command.when_chosen([&chosen, options] {
    chosen = [options] {
      check_one_process("compare");
      std::fputs(compared(*options).c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace fsdp::tools
