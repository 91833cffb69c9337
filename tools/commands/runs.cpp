// Commands that read directories of runs. fsdp status: whether a run lives, where, and how far it
// is (tools/report/run_status.h). fsdp compare: what a knob changed between runs
// (tools/report/compare_runs.h). fsdp trace: a picture of one training step
// (tools/report/step_picture.h). fsdp report: runs as a page, and as files of TensorBoard
// (tools/page/page.h).
#include <cstdio>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/text/byte_size.h"
#include "core/text/counted.h"
#include "tools/commands/commands.h"
#include "tools/launch/launch.h"
#include "tools/launch/status.h"
#include "tools/page/event_file.h"
#include "tools/page/page.h"
#include "tools/report/compare_runs.h"
#include "tools/report/run_costs.h"
#include "tools/report/run_status.h"
#include "tools/report/step_picture.h"
#include "tools/report/trace_file.h"

namespace fsdp::tools {
namespace {

// ---- fsdp status ----

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

// ---- fsdp compare ----

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

// ---- fsdp trace ----

struct TraceOptions {
  std::string run, svg;
  int rank = 0;
  PictureOptions picture;
};

int draw(const TraceOptions& options) {
  check_one_process("trace");
  const std::filesystem::path run = options.run;
  PictureOptions picture = options.picture;
  picture.title = fmt::format("A training step on rank {}: ", options.rank);
  StepPicture drawn;
  const std::vector<TraceEvent> events = read_trace(run, options.rank);
  try {
    drawn = draw_step(events, picture);
  } catch (const Error& error) {
    fail("{}: {}", run.string(), error.what());
  }
  write_file_atomically(options.svg, drawn.svg);
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) / 1e6; };
  std::printf("%s: step %ld of rank %d, %.1f ms; collectives %.1f ms, of which %.1f ms exposed\n",
              options.svg.c_str(), drawn.step, options.rank, ms(drawn.step_ns),
              ms(drawn.communication_ns), ms(drawn.exposed_ns));
  return 0;
}

// ---- fsdp report ----

struct ReportOptions {
  std::vector<std::string> folders;
  std::string page, tensorboard;
};

int report(const ReportOptions& options) {
  check_one_process("report");
  FSDP_CHECK(!options.page.empty() || !options.tensorboard.empty(),
             "report: expected -o FILE or --tensorboard DIR, got neither");
  if (!options.page.empty()) check_page_path(options.page);
  const RunsReport read = read_report({options.folders.begin(), options.folders.end()});
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

void add_status_command(const Command& app) {
  const auto options = std::make_shared<StatusOptions>();
  const Command command = app.add_command("status");
  command.add({{"runs", &options->runs}, {"--json", &options->json}});
  command.runs(options, print_status);
}

void add_compare_command(const Command& app) {
  const auto options = std::make_shared<CompareOptions>();
  const Command command = app.add_command("compare");
  command.add({{"runs", &options->runs},
               {"--columns", &options->columns},
               {"--markdown", &options->markdown},
               {"--csv", &options->csv}});
  command.runs(options, compare);
}

void add_trace_command(const Command& app) {
  const auto options = std::make_shared<TraceOptions>();
  const Command command = app.add_command("trace");
  command.add({{"run", &options->run},
               {"--svg", &options->svg},
               {"--step", &options->picture.step},
               {"--rank", &options->rank},
               {"--width", &options->picture.width}});
  command.runs(options, draw);
}

void add_report_command(const Command& app) {
  const auto options = std::make_shared<ReportOptions>();
  const Command command = app.add_command("report");
  command.add({{"runs", &options->folders},
               {"-o,--output", &options->page},
               {"--tensorboard", &options->tensorboard}});
  command.runs(options, report);
}

}  // namespace fsdp::tools
