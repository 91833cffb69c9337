// fsdp sweep: the runs of an experiment, one after the other, and their table.
// Read next: tools/sweep/README.md.
#include <ctime>
#include <filesystem>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include "core/text/counted.h"
#include "tools/commands/commands.h"
#include "tools/launch/job_end.h"
#include "tools/launch/launch.h"
#include "tools/launch/openmp_variables.h"
#include "tools/launch/shell.h"
#include "tools/sweep/case_prediction.h"
#include "tools/sweep/sweep_run.h"

namespace fsdp::tools {
namespace {

struct SweepCommandOptions {
  std::string recipe;
  std::vector<std::string> set;
  std::string out;  // "": runs/sweep-NAME-TIME
  std::string with = "local";
  std::string hosts;
  std::string rates;
  bool dry_run = false;
};

Launcher launcher_of(const std::string& with) {
  if (with == "mpirun") return Launcher::kMpirun;
  return with == "srun" ? Launcher::kSrun : Launcher::kLocal;
}

// The command that makes the table again in the folder `out`.
std::string command_text(const SweepCommandOptions& options, const std::filesystem::path& out) {
  std::vector<std::string> words = {"fsdp", "sweep", options.recipe};
  for (const std::string& text : options.set) words.insert(words.end(), {"--set", text});
  if (options.with != "local") words.insert(words.end(), {"--with", options.with});
  if (!options.hosts.empty()) words.insert(words.end(), {"--hosts", options.hosts});
  words.insert(words.end(), {"--out", out.string()});
  return shell_text(words);
}

std::string usual_folder(const std::string& name) {
  return fmt::format("runs/sweep-{}-{:%Y%m%d-%H%M%S}", name, fmt::localtime(std::time(nullptr)));
}

void check_hosts(const SweepOptions& sweep, const std::vector<SweepCase>& cases) {
  if (sweep.hosts.empty()) return;
  FSDP_CHECK(sweep.launcher == Launcher::kMpirun, "--hosts: only mpirun starts ranks on them");
  const int slots = Job{.hosts = sweep.hosts}.all_ranks();
  for (const SweepCase& each : cases) {
    FSDP_CHECK(each.ranks <= slots, "--hosts: has {}, and case {} needs {}", counted(slots, "rank"),
               each.name, each.ranks);
  }
}

int run(const SweepCommandOptions& options) {
  check_one_process("sweep");
  show_openmp_variables(::environ);
  Recipe recipe;
  std::vector<SweepCase> cases;
  SweepOptions sweep = {.out = options.out,
                        .launcher = launcher_of(options.with),
                        .program = std::filesystem::read_symlink("/proc/self/exe").string(),
                        .say = print_at_once};
  try {
    if (!options.hosts.empty()) sweep.hosts = read_hosts(options.hosts);
    recipe = read_recipe(options.recipe, options.set);
    cases = cases_of(recipe);
    check_hosts(sweep, cases);
    if (!options.out.empty()) SweepFolder(sweep.out).check(cases);
    if (options.dry_run) {
      print_at_once(predicted_table(cases, options.rates));
      return status::kDone;
    }
    this_host({.launcher = sweep.launcher});  // there is such a launcher
    if (options.out.empty()) sweep.out = usual_folder(recipe.name());
    sweep.command = command_text(options, sweep.out);
    SweepFolder(sweep.out).settle(cases);
  } catch (const Error& error) {
    report_error(error.what());
    return status::kMistake;
  }
  return run_sweep(recipe, cases, sweep);
}

}  // namespace

void add_sweep_command(const Command& app) {
  const auto options = std::make_shared<SweepCommandOptions>();
  const Command command = app.add_command("sweep");
  command.add({{"recipe", &options->recipe},
               {"--set", &options->set},
               {"--out", &options->out},
               {"--with", &options->with},
               {"--hosts", &options->hosts},
               {"--dry-run", &options->dry_run},
               {"--rates", &options->rates}});
  command.runs(options, run);
}

}  // namespace fsdp::tools
