// The file that sbatch takes, and what its shell does with signals and statuses. In a queue:
// tests/e2e/slurm_slow.sh.
// Requirements: S0.11.
#include "tools/jobs/slurm_script.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

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
  const std::string text = slurm_script(job);
  CHECK(text.substr(0, text.find("[ -z \"$cancelled\" ]")) == R"(#!/bin/bash
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
launched= signalled= cancelled=
pass_on() {
  signalled=$1
  [ -n "$launched" ] && kill "-$1" "$launched" 2>/dev/null
  # A process that has just begun does not listen yet; it takes USR1 any number of times.
  [ "$1" = USR1 ] && sleep 1 && kill -USR1 "$launched" 2>/dev/null
}
trap 'pass_on USR1' USR1
trap 'cancelled=yes; pass_on TERM' TERM
# What is appended to the log from here on is of this start.
log=/proc/$$/fd/2
begun=$(stat -Lc %s $log)

module load openmpi

[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export NCCL_DEBUG=${NCCL_DEBUG:-WARN} UCX_LOG_LEVEL=${UCX_LOG_LEVEL:-warn}

/bin/fsdp launch srun -n 8 --restart 3 -- train --config 'my config.yaml' &
launched=$!
[ -z "$signalled" ] || { sleep 1; pass_on "$signalled"; }
# A signal ends a wait, and the process is waited for again.
while signalled=; wait $launched; status=$?; [ -n "$signalled" ]; do :; done
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

// Runs the file with a program of this text, beside a scontrol that keeps a job in a file, and
// writes down what it is asked to change. `before`: what is done to the shell, $1.
struct Shell {
  int status = 0;
  std::string asked = {};  // of scontrol, a line each, without what the number of failures needs
  std::string comment = {};
  std::string said = {};
};
struct Around {
  std::string variables = {};  // NAME=VALUE...
  std::string before = ":";
  std::string site = {};
  std::string comment = {}, excluded = "(null)";
  bool others = true;  // Slurm has other nodes
};
constexpr const char* kScontrol = R"sh(#!/bin/bash
cd "$(dirname "$0")"
case "$1 $2" in
"show job") echo "   JobState=RUNNING"; echo "   ReqNodeList=(null) ExcNodeList=$(cat excluded)"
  [ ! -s comment ] || echo "   Comment=$(cat comment) " ;;
"show hostnames") tr , '\n' <<<"$3" ;;
*) case "$3" in Comment=*) echo "${3#Comment=}" >comment ;; *) echo "$*" >>asked ;; esac ;;
esac
)sh";
Shell run_script(const std::string& program, const Around& around = {}) {
  const test::TempFolder folder;
  SlurmJob job = job_of(1);
  job.job.program = (folder / "fsdp").string();
  if (!around.site.empty()) job.site.lines = {around.site};
  folder.write("job", slurm_script(job));
  folder.write("scontrol", kScontrol);
  folder.write("sbatch", around.others ? "#!/bin/sh\n" : "#!/bin/sh\nexit 1\n");
  folder.write("comment", around.comment);
  folder.write("excluded", around.excluded);
  if (!program.empty()) folder.write("fsdp", "#!/bin/bash\n" + program + "\n");
  const std::string text = fmt::format(
      "cd {}; for i in scontrol sbatch fsdp; do [ ! -e $i ] || chmod +x $i; done; export "
      "PATH=$PWD:$PATH SLURM_JOB_ID=7{} SLURM_JOB_NODELIST=n0,n1 {}; echo earlier >log; "
      "bash job >>log 2>&1 & shell=$!; {}; wait $shell",
      folder.path().string(), ::getpid(), around.variables, around.before);
  Shell shell = {.status = output_of({"bash", "-c", text}).status};
  const auto text_of = [&](const char* name) {
    std::string all = is_there(folder / name) ? read_file(folder / name) : "";
    if (!all.empty() && all.back() == '\n') all.pop_back();
    return all;
  };
  const std::string id = fmt::format("7{}", ::getpid());
  shell.asked = text_of("asked");
  for (size_t at = 0; (at = shell.asked.find(id)) != std::string::npos;) {
    shell.asked.replace(at, id.size(), "7");
  }
  shell.comment = text_of("comment");
  shell.said = text_of("log");
  return shell;
}

TEST_CASE(
    "slurm script: the status is the program's, and what another start may mend begins again") {
  for (int i = 0; i < 5; ++i) CHECK(run_script("").status == 127);  // it ends at once
  for (const int final : {0, 2, 12, 78}) {
    CAPTURE(final);
    const Shell shell = run_script(fmt::format("exit {}", final));
    CHECK(shell.status == final);
    CHECK(shell.asked.empty());
  }
  for (const int failed : {1, 74, 76, 137}) {
    CAPTURE(failed);
    const Shell shell = run_script(fmt::format("exit {}", failed));
    CHECK(shell.status == failed);
    CHECK(shell.asked == "requeue 7");
    CHECK(shell.comment == "failed starts: 1");
  }
  CHECK(run_script("exit 75").asked == "requeue 7");
  CHECK(run_script("exit 75").comment.empty());
  // The number of one job of an array is also that of the whole array.
  CHECK(run_script("exit 75", {.variables = "SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=3"}).asked ==
        "requeue 7_3");
  CHECK(run_script("exit 3", {.site = "set -eu"}).status == 3);
  CHECK(run_script("exit 3", {.site = "set -eu"}).asked == "requeue 7");
}

TEST_CASE("slurm script: failures in a row are counted beside a person's comment") {
  CHECK(run_script("exit 1", {.comment = "of mine"}).comment == "of mine failed starts: 1");
  CHECK(run_script("exit 1", {.comment = "of mine failed starts: 2"}).comment ==
        "of mine failed starts: 3");
  CHECK(run_script("exit 75", {.comment = "of mine failed starts: 2"}).comment == "of mine");
  const Shell last = run_script("exit 1", {.comment = "failed starts: 3"});
  CHECK(last.status == 1);
  CHECK(last.asked.empty());
  CHECK(test::contains(last.said, "status 1: not queued again after 3 failed starts in a row"));
  CHECK(run_script("exit 75", {.comment = "failed starts: 3"}).asked == "requeue 7");
}

TEST_CASE("slurm script: the node that the failure names is left out") {
  const auto asked = [](const std::string& says, const Around& around = {}) {
    const Shell shell = run_script("cat >&2 <<'E'\n" + says + "\nE\nexit 1", around);
    const std::string wait = "requeue 7\nupdate JobId=7 ExcNodeList=";
    CHECK(shell.asked.starts_with("requeue 7"));
    return shell.asked.starts_with(wait) ? shell.asked.substr(wait.size()) : "";
  };
  const std::string stopped =
      "fsdp: rank 1 (n1, process 4712): no sign of life for 10 s: its process is stopped; rank 0 "
      "is in step 12\n  rank 0 (n0, process 4711) in step 12\nsrun: error: n0: task 0: Exited with "
      "exit code 1";
  CHECK(asked(stopped) == "n1");
  CHECK(asked(stopped, {.excluded = "n7"}) == "n7,n1");
  CHECK(asked(stopped, {.others = false}).empty());
  CHECK(asked("fsdp: ranks 2, 3 (n1.cluster): no sign of life for 3 s: the host is down") == "n1");
  CHECK(asked("fsdp: rank 2 (n9): no such node of this job").empty());
  CHECK(asked("fsdp: rank 0 (n0, process 7) on eth0: the processes of the job have not found each "
              "other within 8 s\nsrun: error: n1: task 1: Exited with exit code 127") == "n1");
  CHECK(asked("srun: error: n1: task 1: Exited with exit code 75").empty());
  CHECK(asked("srun: error: n1: task 1: Exited with exit code 1").empty());
  CHECK(asked("srun: error: n1: task 1: Segmentation fault") == "n1");
  CHECK(asked("srun: error: Node failure on n1") == "n1");
  CHECK(asked("mpirun noticed that process rank 1 with PID 0 on node n1 exited on signal 9") ==
        "n1");
  CHECK(asked("srun: error: n[0-1]: tasks 0-1: Exited with exit code 1").empty());
  CHECK(asked("fsdp: a folder is not there").empty());
}

TEST_CASE("slurm script: ranks whose fsdp launch was killed end before the job is queued again") {
  const Shell shell = run_script(
      "printf '#!/bin/bash\\nsleep 0.5; touch saved\\n' >srun; chmod +x srun; "
      "mv scontrol real; printf '#!/bin/bash\\n[ \"$1\" != requeue ] || [ -e saved ] || echo early "
      ">>asked\\nexec -a \"$0\" ./real \"$@\"\\n' >scontrol; chmod +x scontrol; ./srun & kill -9 "
      "$$");
  CHECK(shell.status == 137);
  CHECK(shell.asked == "requeue 7");
}

TEST_CASE("slurm script: a signal reaches the program, also one that comes before it") {
  const std::string stops =
      "trap 'touch told; exit 75' USR1; trap 'exit 143' TERM; touch there; for i in {1..500}; do "
      "sleep 0.01; done";
  const std::string there = "until [ -e there ]; do sleep 0.01; done; ";
  const Shell stopped = run_script(stops, {.before = there + "kill -USR1 $shell"});
  CHECK(stopped.status == 75);
  CHECK(stopped.asked == "requeue 7");
  // A person has cancelled the job.
  const Shell cancelled = run_script(stops, {.before = there + "kill -TERM $shell"});
  CHECK(cancelled.status == 143);
  CHECK(cancelled.asked.empty());
  // While the cluster's modules are loaded.
  CHECK(run_script(stops, {.before = "until [ -e begun ]; do sleep 0.01; done; kill -USR1 $shell; "
                                     "sleep 0.05; touch sent",
                           .site = "touch begun; until [ -e sent ]; do sleep 0.01; done"})
            .asked == "requeue 7");
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
