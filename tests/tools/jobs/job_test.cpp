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
  const JobHost small = {.cores = 2, .root = true, .variables = {}};
  CHECK(command_of(job_of(Launcher::kMpirun, 4, {"train"}), small, false) ==
        Words{"mpirun", "-n", "4", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root",
              "/bin/fsdp", "train"});
}

TEST_CASE("job: the command as a shell reads it") {
  CHECK(shell_text({"fsdp", "--set", "a=[b, c]", "it's", ""}) ==
        "fsdp --set 'a=[b, c]' 'it'\\''s' ''");
}

TEST_CASE("job: a job that starts again has a folder to go on in") {
  const test::TempFolder folder;
  const std::string file = folder.write("c.yaml", "runtime: {run_dir: of_file}\n").string();
  const auto directory = [](const Words& arguments) {
    return directory_of(job_of(Launcher::kLocal, 1, arguments));
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
