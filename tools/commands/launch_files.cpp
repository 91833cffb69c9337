// fsdp launch slurm: writes the file of a job for Slurm, submits it, and follows it. fsdp launch
// pbs, fsdp launch lsf: write a job file to begin with. Read next:
// tools/jobs/batch_file.h.
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/commands/commands.h"
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

// The job's training is checked now, and not after the job has waited for a day.
void settle_training(SlurmOptions& options) {
  const config::TrainConfig config = configuration(options, {});
  for (const std::string& note : config.notes) say("note: " + note);
  const std::string directory = config.runtime.run_dir;
  FSDP_CHECK(!directory.empty(),
             "launch slurm: needs runtime.run_dir, the folder in which the run continues");
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
    say("note: this machine has no srun to ask: the job assumes an srun with PMIx (--with "
        "chooses another)");
    return Launcher::kSrun;
  }
  say(plugin->empty() ? "srun cannot connect the ranks of this program's MPI (srun --mpi=list): "
                        "mpirun starts them"
                      : "srun --mpi=" + *plugin + " starts the ranks");
  return plugin->empty() ? Launcher::kMpirun : Launcher::kSrun;
}

// `mark`: how a file begins that this command has written.
void write_job(const fs::path& file, const std::string& text, const std::string& command,
               const std::string& mark) {
  FSDP_CHECK(!is_there(file) || read_file(file).starts_with(mark),
             "--file: {} exists, and fsdp launch {} has not written it: remove the file, or give "
             "another name",
             file.string(), command);
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
    if (!options.print) write_job(options.file, script, "slurm", script_mark());
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

// ---- pbs, lsf ----

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
    write_job(job.file, text, options.name, batch_file_mark(job.system));
  } catch (const Error& error) {
    report_error(error.what());
    return status::kMistake;
  }
  print_line(fmt::format(
      "launch: {} is written. Such a file was never tried with a real {}: check it, and "
      "add what the cluster needs",
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

void add_launch_slurm(const Command& group) {
  const auto options = std::make_shared<SlurmOptions>();
  SlurmJob& job = options->job;
  const Command command = group.add_command("slurm");
  command.add({{"--config", &options->config},
               {"--set", &options->overrides},
               {"-n,--ranks", &job.job.ranks},
               {"-N,--nodes", &job.nodes},
               {"--gpus-per-node", &job.gpus_of_node},
               {"--cpus-per-task", &job.cores_of_rank},
               {"--time", &job.time},
               {"--job-name", &job.name},
               {"--grace", &job.grace},
               {"--restart", &job.restarts},
               {"--requeue", &job.requeues},
               {"--site", &options->site},
               {"--sbatch", &options->sbatch},
               {"--with", &options->with},
               {"--vary", &options->vary},
               {"--at-once", &job.at_once},
               {"--file", &options->file},
               {"--print", &options->print},
               {"--submit", &options->submit},
               {"--wait", &options->wait}});
  command.when_chosen([options] { return launch_slurm(*options); });
}

void add_launch_batch(const Command& group) {
  add(group, "pbs", BatchSystem::kPbs);
  add(group, "lsf", BatchSystem::kLsf);
}

}  // namespace fsdp::tools
