// The command that starts the ranks of a job, and which jobs can be started again.
#include "tools/jobs/job.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

using Words = std::vector<std::string>;

const JobHost kHost = {
    .cores = 8, .root = false, .variables = {"HOME", "NCCL_DEBUG", "OMP_NUM_THREADS"}};

Job job_of(Launcher launcher, int ranks, const Words& arguments) {
  return {.launcher = launcher, .ranks = ranks, .program = "/bin/fsdp", .arguments = arguments};
}

TEST_CASE("job: ranks as threads are an option of the command, and a restart goes on") {
  CHECK(command_of(job_of(Launcher::kLocal, 1, {"train"}), kHost, false) ==
        Words{"/bin/fsdp", "train"});
  CHECK(command_of(job_of(Launcher::kLocal, 3, {"train"}), kHost, true) ==
        Words{"/bin/fsdp", "train", "--local-ranks", "3", "--resume", "auto"});
  CHECK(command_of(job_of(Launcher::kLocal, 1, {"train", "--resume=auto"}), kHost, true) ==
        Words{"/bin/fsdp", "train", "--resume=auto"});
  CHECK(test::contains(
      test::error_of([] { command_of(job_of(Launcher::kLocal, 1, {}), kHost, false); }),
      "expected a command behind --"));
}

TEST_CASE("job: mpirun gives each rank its cores, and the variables that matter") {
  CHECK(command_of(job_of(Launcher::kMpirun, 4, {"eval", "model"}), kHost, false) ==
        Words{"mpirun", "-n", "4", "--map-by", "slot:PE=2", "--bind-to", "core", "-x", "NCCL_DEBUG",
              "-x", "OMP_NUM_THREADS", "/bin/fsdp", "eval", "model"});
  const JobHost bound = {.cores = 1,
                         .variables = {"GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMPI_X", "GOMP"}};
  CHECK(command_of(job_of(Launcher::kMpirun, 1, {"train"}), bound, false) ==
        Words{"mpirun", "-n", "1", "--map-by", "slot:PE=1", "--bind-to", "core", "-x",
              "GOMP_CPU_AFFINITY", "-x", "KMP_AFFINITY", "/bin/fsdp", "train"});
  const JobHost small = {.cores = 2, .root = true, .variables = {}};
  CHECK(command_of(job_of(Launcher::kMpirun, 4, {"train"}), small, false) ==
        Words{"mpirun", "-n", "4", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root",
              "/bin/fsdp", "train"});
}

TEST_CASE("job: ranks on several hosts") {
  Job job = job_of(Launcher::kMpirun, 0, {"train"});
  job.hosts = parse_hosts("a:4,b:2,c");
  CHECK(job.all_ranks() == 7);
  CHECK(command_of(job, kHost, true) == Words{"mpirun",
                                              "-n",
                                              "7",
                                              "--host",
                                              "a:4,b:2,c:1",
                                              "--map-by",
                                              "slot:PE=2",
                                              "--bind-to",
                                              "core",
                                              "-x",
                                              "NCCL_DEBUG",
                                              "-x",
                                              "OMP_NUM_THREADS",
                                              "-x",
                                              "FSDP_RESTARTS",
                                              "-x",
                                              "FSDP_ENDED_BEFORE",
                                              "-x",
                                              "FSDP_STATUS_BEFORE",
                                              "-x",
                                              "FSDP_CAUSE_BEFORE",
                                              "-x",
                                              "FSDP_DURABLE_STEP",
                                              "/bin/fsdp",
                                              "train",
                                              "--resume",
                                              "auto"});
  job.ranks = 8;
  CHECK(test::error_of([&] { command_of(job, kHost, false); }) ==
        "launch: 8 ranks, but --hosts has 7");
}

TEST_CASE("job: a rank stays near its GPU") {
  const auto binding = [](const std::vector<int>& gpu_nodes, int ranks) {
    JobHost host = kHost;
    host.variables.clear();
    host.gpu_nodes = gpu_nodes;
    Words words = command_of(job_of(Launcher::kMpirun, ranks, {"train"}), host, false);
    return Words(words.begin() + 3, words.end() - 2);
  };
  CHECK(binding({0, 0, 1, 1}, 4) == Words{"--map-by", "ppr:2:numa", "--bind-to", "numa"});
  CHECK(binding({0, 0, 0, 0}, 2) == Words{"--map-by", "ppr:2:numa", "--bind-to", "numa"});
  // Another order, or more ranks than GPUs: the kernel places them.
  for (const std::vector<int>& nodes :
       {std::vector<int>{0, 1, 0, 1}, {1, 1, 0, 0}, {1, 1, 1, 1}, {-1, -1, -1, -1}, {0, 0, 1}}) {
    CHECK(binding(nodes, 4) == Words{"--oversubscribe", "--bind-to", "none"});
  }
}

TEST_CASE("job: srun inside a job of Slurm") {
  JobHost host = kHost;
  host.srun_plugin = "pmix";
  const Job job = job_of(Launcher::kSrun, 4, {"train"});
  CHECK(command_of(job, host, true) == Words{"srun", "-n", "4", "--mpi=pmix",
                                             "--kill-on-bad-exit=0", "--wait=60", "/bin/fsdp",
                                             "train", "--resume", "auto"});
  host.slurm_cores = 8;
  const Words words = command_of(job, host, false);
  CHECK(Words(words.begin() + 6, words.begin() + 8) ==
        Words{"--cpus-per-task=8", "--cpu-bind=cores"});
  CHECK(test::contains(test::error_of([&] { command_of(job, kHost, false); }),
                       "launch srun: srun has no way"));
  // mpirun there: the ranks of this host are those that Slurm wants.
  host.slurm_ranks = 2;
  const Words mpirun = command_of(job_of(Launcher::kMpirun, 4, {"train"}), host, false);
  CHECK(Words(mpirun.begin() + 3, mpirun.begin() + 5) == Words{"--map-by", "slot:PE=4"});
}

TEST_CASE("job: a job that starts again has a folder to go on in") {
  const test::TempFolder folder;
  const std::string file = folder.write("c.yaml", "runtime: {run_dir: of_file}\n").string();
  const auto directory = [](const Words& arguments) {
    return run_of(job_of(Launcher::kLocal, 1, arguments)).directory;
  };
  CHECK(directory({"train", "--config", file}) == "of_file");
  CHECK(directory({"train", "--config=" + file, "--set", "train.steps=3",
                   "runtime.run_dir=typed"}) == "typed");
  CHECK(directory({"train", "--set=runtime.run_dir=one", "--resume", "auto"}) == "one");
  const auto refusal = [&](const Words& arguments) {
    return test::error_of([&] { directory(arguments); });
  };
  CHECK(refusal({"train"}) ==
        "launch: --restart: needs runtime.run_dir, the folder that the run goes on in");
  CHECK(test::contains(refusal({"eval", "model"}), "only train can go on where it was, got eval"));
  CHECK(test::contains(refusal({"train", "--resume", "runs/a"}), "expected --resume auto"));
  CHECK(test::contains(refusal({"train", "--set", "runtime.run_dirr=x"}), "runtime.run_dirr"));
}

}  // namespace
}  // namespace fsdp::tools
