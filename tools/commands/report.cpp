// fsdp report: runs as a page, and as files of TensorBoard. Read next: tools/page/page.h.
#include <cstdio>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/text/byte_size.h"
#include "core/text/counted.h"
#include "tools/commands/commands.h"
#include "tools/launch/launch.h"
#include "tools/page/event_file.h"
#include "tools/page/page.h"
#include "tools/report/run_costs.h"

namespace fsdp::tools {
namespace {

struct ReportOptions {
  std::vector<std::string> folders;
  std::string page, tensorboard;
};

int report(const ReportOptions& options) {
  check_one_process("report");
  FSDP_CHECK(!options.page.empty() || !options.tensorboard.empty(),
             "report: expected -o FILE or --tensorboard DIR, got neither");
  if (!options.page.empty()) check_page_path(options.page);
  const Report read = read_report({options.folders.begin(), options.folders.end()});
  if (!options.page.empty()) {
    const std::string html = page_html(read, unix_time());
    write_file_atomically(options.page, html);
    fmt::print("{}: {}, {}\n", options.page, counted(static_cast<int64_t>(read.runs.size()), "run"),
               byte_size_text(html.size()));
  }
  if (options.tensorboard.empty()) return 0;
  for (const RunView& run : read.runs) {
    const auto folder = std::filesystem::path(options.tensorboard) / run.name;
    fmt::print("{}\n", write_event_file(folder, run.log, run.started()).string());
  }
  return 0;
}

}  // namespace

void add_report_command(const Command& app) {
  const auto options = std::make_shared<ReportOptions>();
  const Command command = app.add_command("report");
  command.add({{"runs", &options->folders},
               {"-o,--output", &options->page},
               {"--tensorboard", &options->tensorboard}});
  command.runs(options, report);
}

}  // namespace fsdp::tools
