// The file that sbatch takes, and what its shell does with signals and statuses. In a queue:
// tests/e2e/slurm_slow.sh.
// Requirements: S0.11.
#include "tools/jobs/slurm_script.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/launch/shell.h"

namespace fsdp::tools {
namespace {

SlurmJob job_of(int ranks) {
  return {.job = {.launcher = Launcher::kSrun,
                  .ranks = ranks,
                  .program = "/bin/fsdp",
                  .arguments = {"train", "--config", "my config.yaml"}},
          .folder = "/work of/me",
          .usual_name = "mine"};
}

std::vector<std::string> options_of(const SlurmJob& job) {
  std::vector<std::string> options;
  const std::string text = slurm_script(job);
  for (size_t at = text.find("#SBATCH "); at != std::string::npos; at = text.find("#SBATCH ", at)) {
    const size_t end = text.find('\n', at);
    options.push_back(text.substr(at + 8, end - at - 8));
    at = end;
  }
  return options;
}
bool has(const SlurmJob& job, const std::string& option) {
  const auto all = options_of(job);
  return std::count(all.begin(), all.end(), option) == 1;
}

TEST_CASE("slurm script: a job on GPUs, with the site's part") {
  SlurmJob job = job_of(8);
  job.gpus_of_node = 4;
  job.cores_of_rank = 8;
  job.time = "4:00:00";
  job.site = {.options = {{"--account", "abc", "site.sh:1"},
                          {"--time", "1:00", "site.sh:2"},
                          {"--output", "%j.txt", "site.sh:3"}},
              .lines = {"module load openmpi"}};
  job.options = {{"--partition", "gpu", "--sbatch"}};
  CHECK(slurm_script(job) == R"(#!/bin/bash
# A job of Slurm, written by fsdp launch slurm. Submit it: sbatch FILE
#SBATCH --job-name=mine
#SBATCH --output=%j.txt
#SBATCH --account=abc
#SBATCH --time=4:00:00
#SBATCH --chdir="/work of/me"
#SBATCH --nodes=2
#SBATCH --ntasks=8
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --partition=gpu

# The signal before the limit comes to this shell alone, and so may scancel's.
launched= signalled=
pass_on() {
  signalled=$1
  [ -n "$launched" ] && kill "-$1" "$launched" 2>/dev/null
  # A process that has just begun does not listen yet; it takes USR1 any number of times.
  [ "$1" = USR1 ] && sleep 1 && kill -USR1 "$launched" 2>/dev/null
}
trap 'pass_on USR1' USR1
trap 'pass_on TERM' TERM

module load openmpi

[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export NCCL_DEBUG=${NCCL_DEBUG:-WARN} UCX_LOG_LEVEL=${UCX_LOG_LEVEL:-warn}

/bin/fsdp launch srun -n 8 --restart 3 -- train --config 'my config.yaml' &
launched=$!
[ -z "$signalled" ] || { sleep 1; pass_on "$signalled"; }
# A signal ends a wait, and the process is waited for again.
while signalled=; wait $launched; status=$?; [ -n "$signalled" ]; do :; done
# 75: the checkpoint is on the disk, and the run has more to do.
if [ $status = 75 ]; then
  job=$SLURM_JOB_ID  # of an array the first one's is the whole array's
  [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
  scontrol requeue "$job"
fi
exit $status
)");
}

TEST_CASE("slurm script: an array, started by mpirun") {
  SlurmJob job = job_of(2);
  job.job.launcher = Launcher::kMpirun;
  job.variations = {{"train.lr=1e-4", "runtime.run_dir=a b"},
                    {"train.lr=2e-4", "runtime.run_dir=c"}};
  job.at_once = 1;
  const std::string text = slurm_script(job);
  CHECK(has(job, "--array=0-1%1"));
  CHECK(has(job, "--output=%x-%A_%a.log"));
  CHECK(test::contains(text, R"(case $SLURM_ARRAY_TASK_ID in
0) varied=(train.lr=1e-4 'runtime.run_dir=a b') ;;
1) varied=(train.lr=2e-4 runtime.run_dir=c) ;;
esac

/bin/fsdp launch mpirun -n 2 --restart 3 -- train --config 'my config.yaml' --set "${varied[@]}" &
)"));
}

TEST_CASE("slurm script: the name of a job") {
  SlurmJob job = job_of(1);
  job.site.options = {{"--job-name", "of_site", "site.sh:1"}};
  CHECK(has(job, "--job-name=of_site"));
  job.name = "given";
  CHECK(has(job, "--job-name=given"));
  job.options = {{"--job-name", "last", "--sbatch"}};
  CHECK(has(job, "--job-name=last"));
}

// Runs the file with a program of this text, and scontrol that writes down what it is asked.
// `before`: what is done to the shell, $1.
struct Shell {
  int status;
  std::string requeued;
};
Shell run_script(const std::string& program, const std::string& variables = "",
                 const std::string& before = "", const std::string& site = "") {
  const test::TempFolder folder;
  SlurmJob job = job_of(1);
  job.job.program = (folder / "fsdp").string();
  if (!site.empty()) job.site.lines = {site};
  folder.write("job", slurm_script(job));
  folder.write("scontrol", "#!/bin/sh\necho $* >" + (folder / "asked").string() + "\n");
  if (!program.empty()) folder.write("fsdp", "#!/bin/bash\n" + program + "\n");
  const std::string text = fmt::format(
      "cd {}; chmod +x scontrol; [ ! -e fsdp ] || chmod +x fsdp; export PATH=$PWD:$PATH "
      "SLURM_JOB_ID=7 {}; "
      "bash job & shell=$!; {}; wait $shell",
      folder.path().string(), variables, before.empty() ? ":" : before);
  Shell shell = {.status = output_of({"bash", "-c", text}).status, .requeued = ""};
  if (is_there(folder / "asked")) shell.requeued = read_file(folder / "asked");
  return shell;
}

TEST_CASE("slurm script: the status is the program's, and 75 asks for another start") {
  for (int i = 0; i < 5; ++i) CHECK(run_script("").status == 127);  // it ends at once
  CHECK(run_script("exit 0").status == 0);
  const Shell failed = run_script("exit 3");
  CHECK(failed.status == 3);
  CHECK(failed.requeued.empty());
  CHECK(run_script("exit 75").requeued == "requeue 7\n");
  // The number of one job of an array is also that of the whole array.
  CHECK(run_script("exit 75", "SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=3").requeued ==
        "requeue 7_3\n");
  CHECK(run_script("exit 3", "", "", "set -e").status == 3);
}

TEST_CASE("slurm script: a signal reaches the program, also one that comes before it") {
  const std::string stops =
      "trap 'touch told; exit 75' USR1; trap 'exit 143' TERM; touch there; for i in {1..500}; do "
      "sleep 0.01; done";
  const std::string there = "until [ -e there ]; do sleep 0.01; done; ";
  const Shell stopped = run_script(stops, "", there + "kill -USR1 $shell");
  CHECK(stopped.status == 75);
  CHECK(stopped.requeued == "requeue 7\n");
  CHECK(run_script(stops, "", there + "kill -TERM $shell").status == 143);
  // While the cluster's modules are loaded.
  const std::string early = "touch begun; until [ -e sent ]; do sleep 0.01; done";
  CHECK(run_script(
            stops, "",
            "until [ -e begun ]; do sleep 0.01; done; kill -USR1 $shell; sleep 0.05; touch sent",
            early)
            .requeued == "requeue 7\n");
}

TEST_CASE("slurm script: a limit that is over before the run may begin") {
  SlurmJob job = job_of(1);
  job.time = "5";
  CHECK(test::contains(test::error_of([&] { slurm_script(job); }),
                       "--time 5: the run would be told to save at its start: --grace is 300 s"));
  job.grace = 60;
  CHECK(has(job, "--signal=B:USR1@60"));
}

TEST_CASE("slurm script: a text that sbatch would read otherwise is refused") {
  SlurmJob job = job_of(1);
  for (const char* name : {"it's", "a\\b", "half \"a name"}) {
    job.name = name;
    CHECK(test::contains(test::error_of([&] { slurm_script(job); }),
                         "--job-name: expected a text without quotes"));
  }
}

TEST_CASE("slurm script: how ranks lie on nodes") {
  SlurmJob job = job_of(6);
  CHECK(!test::contains(slurm_script(job), "--nodes"));
  job.nodes = 3;
  CHECK(has(job, "--nodes=3"));
  CHECK(has(job, "--ntasks-per-node=2"));
  job.nodes = 4;
  CHECK(
      test::contains(test::error_of([&] { slurm_script(job); }), "-n 6: no multiple of --nodes 4"));
  job.nodes = 0;
  job.gpus_of_node = 8;  // fewer ranks than a node has GPUs
  CHECK(has(job, "--nodes=1"));
  CHECK(has(job, "--gpus-per-node=6"));
  job.gpus_of_node = 4;
  CHECK(test::contains(test::error_of([&] { slurm_script(job); }),
                       "no multiple of --gpus-per-node 4"));
  job.nodes = 1;
  CHECK(test::contains(test::error_of([&] { slurm_script(job); }),
                       "6 ranks on each of 1 nodes, but --gpus-per-node 4"));
}

TEST_CASE("slurm script: what it decides itself is refused elsewhere") {
  SlurmJob job = job_of(1);
  job.site.options = {{"--signal", "USR1@60", "site.sh:7"}};
  CHECK(test::error_of([&] { slurm_script(job); }) ==
        "site.sh:7: --signal: fsdp launch slurm decides that: --grace");
  job.site.options.clear();
  job.options = {{"--no-requeue", "", "--sbatch"}};
  CHECK(test::contains(test::error_of([&] { slurm_script(job); }), "--sbatch: --no-requeue: "));
}

}  // namespace
}  // namespace fsdp::tools
