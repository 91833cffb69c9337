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

int compare(const CompareOptions& options) {
  check_one_process("compare");
  std::fputs(compared(options).c_str(), stdout);
  return 0;
}

}  // namespace

void add_compare_command(const Command& app) {
  const auto options = std::make_shared<CompareOptions>();
  const Command command = app.add_command("compare");
  command.add({{"runs", &options->runs},
               {"--columns", &options->columns},
               {"--markdown", &options->markdown},
               {"--csv", &options->csv}});
  command.runs(options, compare);
}

}  // namespace fsdp::tools
