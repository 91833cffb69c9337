// fsdp launch: starts the ranks of another command of this program, and keeps them running.
// Read next: tools/jobs/parent.h. Not here: a job that waits in a queue (launch_files.cpp).
#include "tools/launch/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tools/commands/commands.h"
#include "tools/jobs/parent.h"
#include "tools/launch/job_end.h"
#include "tools/launch/openmp_variables.h"
#include "tools/launch/shell.h"

namespace fsdp::tools {
namespace {

struct LaunchCommandOptions {
  Job job;
  std::string hosts;  // "": this one
  int64_t restarts = 0;
  int64_t pause = RestartLimits().longest_pause.count();  // seconds
  int64_t patience = RestartLimits().patience.count();    // seconds
  bool print = false;
};

int start_job(const LaunchCommandOptions& options) {
  check_one_process("launch");
  show_openmp_variables(::environ);
  ParentOptions parent = {.job = options.job,
                          .restarts = {.most = options.restarts,
                                       .longest_pause = std::chrono::seconds(options.pause),
                                       .patience = std::chrono::seconds(options.patience),
                                       .several_hosts = !options.hosts.empty() ||
                                                        options.job.launcher == Launcher::kSrun},
                          .say = [](const std::string& line) { print_line("launch: " + line); }};
  parent.job.program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> command;
  try {
    if (!options.hosts.empty()) parent.job.hosts = read_hosts(options.hosts);
    FSDP_CHECK(options.job.ranks > 0 || !options.hosts.empty(), "launch: expected -n, or --hosts");
    if (options.restarts > 0) {
      const JobRun run = run_of(parent.job);
      parent.run_directory = run.directory;
      parent.silence = run.timeout;
    }
    command = command_of(parent.job, this_host(parent.job), options.restarts > 0);
  } catch (const Error& error) {
    report_error(error.what());
    return status::kMistake;
  }
  if (!options.print) return keep_running(parent);
  print_at_once(shell_text(command));
  return status::kDone;
}

}  // namespace

void add_launch_command(const Command& app) {
  const Command group = app.add_command("launch");
  group.require_command();
  const auto add = [&](const char* name, Launcher launcher) {
    const auto options = std::make_shared<LaunchCommandOptions>();
    options->job.launcher = launcher;
    const Command command = group.add_command(name);
    command.add({{"-n,--ranks", &options->job.ranks}});
    if (launcher == Launcher::kMpirun) command.add({{"--hosts", &options->hosts}});
    command.add("@launch", {{"--restart", &options->restarts},
                            {"--pause", &options->pause},
                            {"--patience", &options->patience},
                            {"--print", &options->print},
                            {"command", &options->job.arguments}});
    command.runs(options, start_job);
  };
  add("local", Launcher::kLocal);
  add("mpirun", Launcher::kMpirun);
  add("srun", Launcher::kSrun);
  add_launch_slurm(group);
  add_launch_batch(group);
}

}  // namespace fsdp::tools
