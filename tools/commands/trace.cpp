// fsdp trace: a picture of one training step. Read next: tools/report/step_picture.h.
#include <cstdio>

#include <fmt/format.h>

#include "core/io/file.h"
#include "tools/commands/commands.h"
#include "tools/launch/launch.h"
#include "tools/report/step_picture.h"
#include "tools/report/trace_file.h"

namespace fsdp::tools {
namespace {

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

}  // namespace

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

}  // namespace fsdp::tools
