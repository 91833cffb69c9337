// The file that sbatch takes. In a queue: tests/e2e/slurm_slow.sh.
#include "tools/jobs/slurm_script.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

SlurmJob job_of(int ranks) {
  return {.job = {.launcher = Launcher::kSrun,
                  .ranks = ranks,
                  .program = "/bin/fsdp",
                  .arguments = {"train", "--config", "my config.yaml"}},
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
# A job of Slurm, written by fsdp launch slurm. Submit it where it was written: sbatch FILE
#SBATCH --job-name=mine
#SBATCH --output=%j.txt
#SBATCH --account=abc
#SBATCH --time=4:00:00
#SBATCH --nodes=2
#SBATCH --ntasks=8
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --partition=gpu

module load openmpi

[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export NCCL_DEBUG=${NCCL_DEBUG:-WARN} UCX_LOG_LEVEL=${UCX_LOG_LEVEL:-warn}

/bin/fsdp launch srun -n 8 --restart 3 -- train --config 'my config.yaml' &
launched=$!
# The signal before the limit comes to this shell alone, and scancel's too.
trap 'kill -USR1 $launched' USR1
trap 'kill -TERM $launched' TERM
status=0
while kill -0 $launched 2>/dev/null; do wait $launched && status=0 || status=$?; done
# 75: the checkpoint is on the disk, and the run has more to do.
[ $status != 75 ] || scontrol requeue "$SLURM_JOB_ID"
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
