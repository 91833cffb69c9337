// fsdp launch slurm: writes the file of a job for Slurm, submits it, and follows it.
// Read next: tools/jobs/batch_file.h.
#include "tools/commands/launch_slurm.h"

#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/config/config.h"
#include "tools/jobs/batch_file.h"
#include "tools/jobs/job.h"
#include "tools/jobs/slurm_queue.h"
#include "tools/launch/batch_job.h"
#include "tools/launch/job_end.h"
#include "tools/launch/launch.h"
#include "tools/launch/openmp_variables.h"
#include "tools/launch/status.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

struct SlurmOptions {
  SlurmJob job;
  std::string config;
  std::vector<std::string> overrides;
  std::vector<std::string> sbatch, vary;
  std::string site, file = "fsdp.sbatch", with = "auto";
  bool submit = false, wait = false, print = false;
};

void say(const std::string& line) { print_line("launch: " + line); }

config::TrainConfig configuration(const SlurmOptions& options, const Variation& varied) {
  std::vector<config::Override> overrides(options.overrides.begin(), options.overrides.end());
  for (const std::string& text : varied) {
    // The directory of a variation takes the place of the one that was given.
    const std::string key = text.substr(0, text.find('=') + 1);
    if (key == "runtime.run_dir=") {
      std::erase_if(overrides, [&](const auto& each) { return each.text.starts_with(key); });
    }
    overrides.emplace_back(text);
  }
  return config::read_config(options.config, overrides);
}

// What the job trains is checked now, and not when it has waited for a day.
void settle_training(SlurmOptions& options) {
  const config::TrainConfig config = configuration(options, {});
  for (const std::string& note : config.notes) say("note: " + note);
  const std::string directory = config.runtime.run_dir;
  FSDP_CHECK(!directory.empty(),
             "launch slurm: needs runtime.run_dir, the folder that the run goes on in");
  FSDP_CHECK(config.runtime.launch.end_time == 0,
             "launch slurm: runtime.end_time: Slurm says when the time of a job is over");
  FSDP_CHECK(!config.data.train.empty() || !config.data.sources.empty() || config.data.synthetic(),
             "launch slurm: data.train: expected at least one file");
  SlurmJob& job = options.job;
  job.folder = fs::current_path().string();
  job.usual_name =
      fs::absolute(directory + "/").lexically_normal().parent_path().filename().string();
  if (job.usual_name.empty()) job.usual_name = "fsdp";
  job.variations =
      options.vary.empty() ? std::vector<Variation>() : variations_of(options.vary, directory);
  for (const Variation& varied : job.variations) configuration(options, varied);
  std::vector<std::string>& words = job.job.arguments;
  words = {"train"};
  if (!options.config.empty()) words.insert(words.end(), {"--config", options.config});
  for (const std::string& text : options.overrides) {
    const bool replaced = !job.variations.empty() && text.starts_with("runtime.run_dir=");
    if (!replaced) words.insert(words.end(), {"--set", text});
  }
  words.insert(words.end(), {"--resume", "auto"});
}

// Says which, and why.
Launcher launcher_of(const std::string& with) {
  if (with != "auto") return with == "srun" ? Launcher::kSrun : Launcher::kMpirun;
  const auto plugin = asked_srun_plugin();
  if (!plugin) {
    say("note: there is no srun on this machine that could be asked: taken for one with PMIx "
        "(--with)");
    return Launcher::kSrun;
  }
  say(plugin->empty() ? "srun cannot connect the ranks of this program's MPI (srun --mpi=list): "
                        "mpirun starts them"
                      : "srun --mpi=" + *plugin + " starts the ranks");
  return plugin->empty() ? Launcher::kMpirun : Launcher::kSrun;
}

void write_script(const fs::path& file, const std::string& text) {
  FSDP_CHECK(!is_there(file) || read_file(file).starts_with(script_mark()),
             "--file: {} is there already, and fsdp launch slurm has not written it",
             file.string());
  write_file_atomically(file, text);
}

// A job that Slurm starts again can tell then that its storage is not mounted (resume.cpp), also
// where its first start came to nothing.
void make_run_directories(const SlurmOptions& options) {
  std::vector<Variation> all = options.job.variations;
  if (all.empty()) all.emplace_back();
  for (const Variation& varied : all) {
    try {
      make_folders(configuration(options, varied).runtime.run_dir);
    } catch (const SystemError& error) {
      say(fmt::format("note: {}; the job makes its run directory itself", error.what()));
    }
  }
}

int submit_job(const SlurmOptions& options) {
  make_run_directories(options);
  const std::string id = submit(options.file);
  say(fmt::format("job {} is submitted: squeue -j {}, scancel {}", id, id, id));
  if (!options.wait) return status::kDone;
  say("following the job; Ctrl-C leaves it in the queue");
  return follow(id, {.say = say, .show = [](const std::string& text) {
                       std::fwrite(text.data(), 1, text.size(), stdout);
                       std::fflush(stdout);
                     }});
}

int launch_slurm(SlurmOptions options) {
  check_one_process("launch");
  show_openmp_variables(::environ);
  std::string script;
  try {
    SlurmJob& job = options.job;
    settle_training(options);
    if (!options.site.empty()) job.site = read_site(options.site);
    for (const std::string& text : options.sbatch)
      job.options.push_back(parse_sbatch(text, "--sbatch"));
    job.job.program = fs::read_symlink("/proc/self/exe").string();
    job.job.launcher = launcher_of(options.with);
    script = slurm_script(job);
    if (!options.print) write_script(options.file, script);
  } catch (const Error& error) {
    report_error(error.what());
    return status::kMistake;
  }
  if (options.print) {
    print_at_once(script);
    return status::kDone;
  }
  if (options.submit || options.wait) return submit_job(options);
  say(fmt::format("{} is written: sbatch {}", options.file, options.file));
  return status::kDone;
}

void add_options_of_job(const Command& command, SlurmOptions& options) {
  SlurmJob& job = options.job;
  command.add_option("-n,--ranks", job.job.ranks, "how many ranks").required().from_to(1, 65536);
  command.add_option("-N,--nodes", job.nodes, "how many nodes (default: Slurm chooses)")
      .from_to(1, 65536);
  command
      .add_option("--gpus-per-node", job.gpus_of_node,
                  "a rank for each (default: 0, the CPU computes)")
      .from_to(0, 64);
  command
      .add_option("--cpus-per-task", job.cores_of_rank,
                  "cores of a rank (default: as the partition says)")
      .from_to(1, 4096);
  command.add_option("--time", job.time,
                     "limit, as sbatch takes it: 4:00:00 (default: as the partition says)");
  command.add_option("--job-name", job.name, "default: the last part of runtime.run_dir");
  command
      .add_option("--grace", job.grace,
                  "seconds before the limit at which the run is told to save (default: 300)")
      .from_to(int64_t{1}, int64_t{65535});
  command
      .add_option("--restart", job.restarts,
                  "how often the run is started again after a crash, inside a job (default: 3)")
      .from_to(int64_t{0}, int64_t{1'000'000});
  command
      .add_option("--requeue", job.requeues,
                  "how often the job is queued again after starts in a row that failed (default: "
                  "3), without the node that the failure names")
      .from_to(int64_t{0}, int64_t{1'000'000});
  command
      .add_option("--site", options.site,
                  "a file of #SBATCH lines and shell commands that this cluster wants")
      .path()
      .check(not_empty);
  command
      .add_option("--sbatch", options.sbatch, "another option of sbatch: --sbatch=--partition=gpu")
      .one_value_each();
  command
      .add_option("--with", options.with,
                  "what starts the ranks: srun, mpirun; auto (default): srun where it can")
      .one_of({"auto", "srun", "mpirun"});
  const Option vary = command
                          .add_option("--vary", options.vary,
                                      "train.lr=[1e-4, 3e-4]: an array of jobs, one for each "
                                      "value, or combination of values")
                          .one_value_each();
  command
      .add_option("--at-once", job.at_once, "how many jobs of the array run at once (default: all)")
      .from_to(1, 10000)
      .needs(vary);
}

}  // namespace

void add_launch_slurm(const Command& group, ChosenCommand& chosen) {
  const auto options = std::make_shared<SlurmOptions>();
  const Command command =
      group.add_command("slurm", "writes the job of a training run for sbatch, and submits it");
  command.add_option("--config", options->config, "the configuration of train").path();
  command.add_option("--set", options->overrides, "a key of it: --set train.lr=1e-4");
  add_options_of_job(command, *options);
  command.add_option("--file", options->file, "what is written (default: fsdp.sbatch)")
      .path()
      .check(not_empty);
  const Option print =
      command.add_flag("--print", options->print, "prints the file, writes and submits nothing");
  command.add_flag("--submit", options->submit, "runs sbatch").excludes(print);
  command
      .add_flag("--wait", options->wait, "the same, and follows the job: its status is the job's")
      .excludes(print);
  command.when_chosen(
      [&chosen, options] { chosen = [options] { return launch_slurm(*options); }; });
}

}  // namespace fsdp::tools
