// fsdp launch pbs, fsdp launch lsf: writes a job file to begin with.
// Read next: tools/jobs/batch_file.h.
#include <filesystem>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/commands/commands.h"
#include "tools/jobs/batch_file.h"
#include "tools/jobs/job.h"
#include "tools/launch/job_end.h"
#include "tools/launch/status.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

struct BatchOptions {
  BatchFile job;
  std::string name;  // "pbs"
  std::string file;
  bool print = false;
};

int launch_batch(const BatchOptions& options) {
  check_one_process("launch");
  try {
    BatchFile job = options.job;
    run_of({.ranks = job.ranks, .program = {}, .arguments = job.arguments});
    job.folder = fs::current_path().string();
    job.file = fs::absolute(options.file).string();
    job.program = fs::read_symlink("/proc/self/exe").string();
    const std::string text = batch_file(job);
    if (options.print) {
      print_at_once(text);
      return status::kDone;
    }
    FSDP_CHECK(!is_there(job.file) || read_file(job.file).starts_with(batch_file_mark(job.system)),
               "--file: {} is there already, and fsdp launch {} has not written it", options.file,
               options.name);
    write_file_atomically(job.file, text);
  } catch (const Error& error) {
    report_error(error.what());
    return status::kMistake;
  }
  print_line(
      fmt::format("launch: {} is written. It was never tried with a real {}: look at it, add "
                  "what the cluster wants",
                  options.file, options.name));
  return status::kDone;
}

void add(const Command& group, const char* name, BatchSystem system) {
  const auto options = std::make_shared<BatchOptions>();
  options->name = name;
  options->file = fmt::format("fsdp.{}", name);
  options->job.system = system;
  const Command command = group.add_command(name);
  command.add("@launch batch",
              {{"-n,--ranks", &options->job.ranks},
               {"-N,--nodes", &options->job.nodes},
               {"--time", &options->job.time},
               {.name = "--file", .target = &options->file, .shown = options->file},
               {"--print", &options->print},
               {"command", &options->job.arguments}});
  command.runs(options, launch_batch);
}

}  // namespace

void add_launch_batch(const Command& group) {
  add(group, "pbs", BatchSystem::kPbs);
  add(group, "lsf", BatchSystem::kLsf);
}

}  // namespace fsdp::tools
