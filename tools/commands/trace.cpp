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

void add_trace_command(const Command& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<TraceOptions>();
  const Command command = app.add_command("trace", "draws one step of a run made with --trace");
  command.add_option("run", options->run, "the run directory").required().path();
  command.add_option("--svg", options->svg, "the file to write").required().path();
  command.add_option("--step", options->picture.step, "counted from 1 (default: the last)")
      .from_to(int64_t{1}, int64_t{1} << 40);
  command.add_option("--rank", options->rank, "whose timeline (default: 0)").from_to(0, 1 << 20);
  command.add_option("--width", options->picture.width, "of the picture, in pixels (default: 960)")
      .from_to(480, 20000);
  command.when_chosen([&chosen, options] { chosen = [options] { return draw(*options); }; });
}

}  // namespace fsdp::tools
