// fsdp launch: starts the ranks of another command of this program, and keeps them running.
// Read next: tools/jobs/parent.h. Not here: a job that waits in a queue (launch_slurm.cpp).
#include "tools/launch/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tools/commands/commands.h"
#include "tools/commands/launch_batch.h"
#include "tools/commands/launch_slurm.h"
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

void add_launch_command(const Command& app, ChosenCommand& chosen) {
  const Command group = app.add_command("launch", "starts the ranks of a command, also again");
  group.require_command();
  const auto add = [&](const char* name, const char* help, Launcher launcher) {
    const auto options = std::make_shared<LaunchCommandOptions>();
    options->job.launcher = launcher;
    const Command command = group.add_command(name, help);
    const Option ranks = command.add_option("-n,--ranks", options->job.ranks, "how many ranks");
    ranks.from_to(1, 65536);
    if (launcher == Launcher::kMpirun) {
      command.add_option(
          "--hosts", options->hosts,
          "where the ranks run: a:4,b:4, or a hostfile; -n is then the sum unless it is "
          "given");
    } else {
      ranks.required();
    }
    command
        .add_option("--restart", options->restarts,
                    "how often train is started again where it was, after a crash (default: 0)")
        .from_to(int64_t{0}, int64_t{1'000'000});
    command
        .add_option("--pause", options->pause,
                    "the longest pause before train is started again, in seconds (default: 60)")
        .from_to(int64_t{0}, int64_t{86'400});
    command
        .add_option("--patience", options->patience,
                    "how long a storage or a host that does not answer is waited for, in seconds "
                    "(default: 1800)")
        .from_to(int64_t{0}, int64_t{30} * 86'400);
    command.add_flag("--print", options->print, "prints the command that starts the ranks");
    command.add_option("command", options->job.arguments, "train ..., behind --").required();
    command.when_chosen([&chosen, options] { chosen = [options] { return start_job(*options); }; });
  };
  add("local", "ranks as threads of one process", Launcher::kLocal);
  add("mpirun", "ranks as processes, of this host or of --hosts", Launcher::kMpirun);
  add("srun", "ranks as processes, inside a job of Slurm", Launcher::kSrun);
  add_launch_slurm(group, chosen);
  add_launch_batch(group, chosen);
}

}  // namespace fsdp::tools
