// The file that a batch system takes, and what its shell does with signals and statuses. In a
// queue: tests/e2e/slurm_slow.sh. Requirements: S0.11.
#include "tools/jobs/batch_file.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/launch/shell.h"

namespace fsdp::tools {
namespace {

TEST_CASE("site: options of sbatch, and commands of the shell") {
  const test::TempFolder folder;
  const auto file = folder.write("site.sh",
                                 "#!/bin/bash\n# of this cluster\n#SBATCH --account=abc  # mine\r\n"
                                 "#SBATCH -p gpu\n#SBATCH --exclusive\n\nmodule load openmpi\n");
  const SlurmSite site = read_site(file);
  REQUIRE(site.options.size() == 3);
  CHECK(site.options[0].text() == "--account=abc");
  CHECK(site.options[0].place == file.string() + ":3");
  CHECK(site.options[1].text() == "--partition=gpu");
  CHECK(site.options[2].text() == "--exclusive");
  CHECK(site.lines == std::vector<std::string>{"# of this cluster", "module load openmpi"});
}

TEST_CASE("site: what is no option is refused with its place") {
  const test::TempFolder folder;
  const auto file = folder.write("site.sh", "#SBATCH account=abc\n");
  CHECK(test::error_of([&] { read_site(file); }) ==
        file.string() +
            ":1: expected an option of sbatch, such as --partition=gpu, got \"account=abc\"");
  CHECK(test::error_of([] { parse_sbatch("-Z 3", "--sbatch"); }) ==
        "--sbatch: -Z: give the option's long name");
  CHECK(parse_sbatch("--gres gpu:4", "").text() == "--gres=gpu:4");
  CHECK(parse_sbatch("--comment=\"a b\"", "").text() == "--comment=\"a b\"");
  CHECK(SbatchOption{"--job-name", "a b", ""}.text() == "--job-name=\"a b\"");
  CHECK(test::contains(test::error_of([&] { read_site(folder / "absent.sh"); }), "absent.sh"));
}

TEST_CASE("site: two options in a line are refused") {
  for (const char* two : {"-p gpu -A proj", "--exclusive --mem=0"}) {
    CHECK(test::contains(test::error_of([&] { parse_sbatch(two, "site.sh:2"); }),
                         "site.sh:2: expected one option in a line"));
  }
}

TEST_CASE("site: limits as sbatch takes them") {
  const auto seconds = [](const char* time) { return slurm_seconds(time, "site.sh:3"); };
  CHECK(seconds("30") == 1800);
  CHECK(seconds("1:30") == 90);
  CHECK(seconds("1:00:05") == 3605);
  CHECK(seconds("100:00:00") == 360000);
  CHECK(seconds("2-12") == 216000);
  CHECK(seconds("1-0:30") == 88200);
  CHECK(seconds("1-0:0:1") == 86401);
  for (const char* none : {"UNLIMITED", "unlimited", "infinite", "0", "-1", "0:0:0"}) {
    CAPTURE(none);
    CHECK(seconds(none) == std::nullopt);
  }
  for (const char* other : {"", "1:2:3:4", "-5", "a-1", "4h", "2-", "1:", ":30", "1-1:2:3:4", "12 ",
                            "1.5", "1d", "00:30:00s"}) {
    CAPTURE(other);
    CHECK(test::error_of([&] { seconds(other); }) ==
          fmt::format("site.sh:3: --time: expected minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S or "
                      "UNLIMITED, got \"{}\"",
                      other));
  }
}

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
  CHECK(text.substr(0, text.find("# The signal before the limit")) == R"(#!/bin/bash
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

)");
  CHECK(test::contains(text, "\n\nmodule load openmpi\n\n[ -z "));
  CHECK(test::contains(
      text, "\n\n/bin/fsdp launch srun -n 8 --restart 3 -- train --config 'my config.yaml' &\n"));
  CHECK(test::contains(text, "i < 300;"));
  CHECK(test::contains(text, "\nmost=3 failures=0"));
  CHECK(std::count(text.begin(), text.end(), '@') == 1);  // of --signal: no place is left over
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

BatchFile job_of(BatchSystem system) {
  return {.system = system,
          .file = "/my/job",
          .folder = "/my folder",
          .program = "/bin/fsdp",
          .ranks = 16,
          .nodes = 2,
          .time = "1-12:00",
          .arguments = {"train", "--config", "my config.yaml"}};
}

TEST_CASE("batch file: PBS") {
  CHECK(batch_file(job_of(BatchSystem::kPbs)) == R"(#!/bin/bash
# A job file, written by fsdp launch pbs. Submit it: qsub /my/job
# Add what the cluster wants: a queue, an account, GPUs, module load ...
#PBS -l select=2:ncpus=8:mpiprocs=8
#PBS -l walltime=36:00:00
#PBS -j oe

begun=$(date +%s)
cd '/my folder' || exit 1
/bin/fsdp launch mpirun --hosts "@$PBS_NODEFILE" -n 16 --restart 3 -- train --config 'my config.yaml' --set runtime.end_time=$((begun + 129600))
status=$?
# 75: the checkpoint is on the disk, and the run has more to do.
[ $status != 75 ] || qsub /my/job
exit $status
)");
}

TEST_CASE("batch file: LSF") {
  BatchFile job = job_of(BatchSystem::kLsf);
  CHECK(test::contains(batch_file(job), R"(
#BSUB -n 16
#BSUB -R "span[ptile=8]"
#BSUB -W 36:00
#BSUB -Q "75"
)"));
  CHECK(test::contains(batch_file(job), "--hosts \"@$LSB_DJOB_HOSTFILE\" -n 16"));
  job.time.clear();
  CHECK(!test::contains(batch_file(job), "#BSUB -W"));
  CHECK(!test::contains(batch_file(job), "end_time"));
  job.nodes = 3;
  CHECK(
      test::contains(test::error_of([&] { batch_file(job); }), "-n 16: no multiple of --nodes 3"));
  job.nodes = 2;
  job.time = "4h";
  CHECK(test::contains(test::error_of([&] { batch_file(job); }), "launch lsf: --time: expected"));
}

TEST_CASE("batch file: the shell passes the status on, and submits the file again after 75") {
  const test::TempFolder folder;
  for (const int status : {0, 75, 1}) {
    BatchFile job = job_of(BatchSystem::kPbs);
    job.folder = folder.path().string();
    job.program = (folder / "fsdp").string();
    folder.write("job", batch_file(job));
    folder.write("fsdp", fmt::format("#!/bin/sh\necho \"$@\" >said\nexit {}\n", status));
    folder.write("qsub", "#!/bin/sh\necho $1 >submitted\n");
    const std::string text = fmt::format(
        "cd {}; chmod +x fsdp qsub; rm -f submitted; PATH=$PWD:$PATH PBS_NODEFILE=/tmp/n bash job",
        folder.path().string());
    CHECK(output_of({"bash", "-c", text}).status == status);
    CHECK(is_there(folder / "submitted") == (status == 75));
    CHECK(read_file(folder / "said").starts_with("launch mpirun --hosts @/tmp/n -n 16 "));
  }
}

}  // namespace
}  // namespace fsdp::tools
