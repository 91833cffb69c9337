// fsdp launch pbs, fsdp launch lsf: writes a job file to begin with.
// Read next: tools/jobs/batch_file.h.
#include "tools/commands/launch_batch.h"

#include <filesystem>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/jobs/batch_file.h"
#include "tools/jobs/job.h"
#include "tools/launch/job_end.h"
#include "tools/launch/launch.h"
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

int launch_batch(BatchOptions options) {
  check_one_process("launch");
  try {
    BatchFile& job = options.job;
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

void add(const Command& group, ChosenCommand& chosen, const char* name, BatchSystem system) {
  const auto options = std::make_shared<BatchOptions>();
  options->name = name;
  options->file = fmt::format("fsdp.{}", name);
  options->job.system = system;
  const Command command =
      group.add_command(name, "writes a job file to begin with, around launch mpirun");
  command.add_option("-n,--ranks", options->job.ranks, "how many ranks")
      .required()
      .from_to(1, 65536);
  command.add_option("-N,--nodes", options->job.nodes, "how many nodes (default: 1)")
      .from_to(1, 65536);
  command.add_option("--time", options->job.time, "limit: 4:00:00 (default: as the queue says)");
  command.add_option("--file", options->file, "what is written (default: " + options->file + ")")
      .path()
      .check(not_empty);
  command.add_flag("--print", options->print, "prints the file, writes nothing");
  command.add_option("command", options->job.arguments, "train ..., behind --").required();
  command.when_chosen(
      [&chosen, options] { chosen = [options] { return launch_batch(*options); }; });
}

}  // namespace

void add_launch_batch(const Command& group, ChosenCommand& chosen) {
  add(group, chosen, "pbs", BatchSystem::kPbs);
  add(group, chosen, "lsf", BatchSystem::kLsf);
}

}  // namespace fsdp::tools
