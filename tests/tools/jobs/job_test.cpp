// Hosts and the command of a job.
#include "tools/jobs/job.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

using Hosts = std::vector<HostSlots>;

TEST_CASE("hosts: a list") {
  CHECK(parse_hosts("a:4,b:2,c") == Hosts{{"a", 4}, {"b", 2}, {"c", 1}});
  CHECK(parse_hosts("n[01-02,7]:8,login") ==
        Hosts{{"n01", 8}, {"n02", 8}, {"n7", 8}, {"login", 1}});
  for (const char* wrong : {"", "a:", "a:0", "a:4,", ":3", "a:x", "a:-1", "a:1, b:1", "a:99999",
                            "a slots=4", "a=4", ".", "-a", "<html>", "fe80::1:4"}) {
    CAPTURE(wrong);
    CHECK(test::contains(test::error_of([&] { parse_hosts(wrong); }),
                         "--hosts: expected host:ranks"));
  }
  CHECK(test::error_of([] { parse_hosts("a:1,a:2"); }) == "--hosts: a is listed twice");
  CHECK(test::contains(test::error_of([] { parse_hosts("n[1-"); }), "a ] behind each ["));
}

TEST_CASE("hosts: files of launchers and batch systems") {
  const Hosts two = {{"a", 4}, {"b", 4}};
  const struct {
    const char* of;
    std::string text;
  } files[] = {{"Open MPI", "# mine\n\na slots=4 max_slots=8\nb slots=4  # slow\n"},
               {"Open MPI 5", "a slots=4 max-slots=4\r\nb   slots=4\r\n"},
               {"DeepSpeed", "a slots=4\nb slots=4"},
               {"MPICH", "a:4\nb:4\n"},
               {"MPICH, again", "a:2\nb:4\na:2\n"},
               {"PBS", "a\na\na\na\nb\nb\nb\nb\n"},
               {"LSF", "a 4\nb 4\n"},
               {"Grid Engine", "a 4 all.q@a UNDEFINED\nb 4 all.q@b UNDEFINED\n"}};
  for (const auto& file : files) {
    CAPTURE(file.of);
    CHECK(parse_host_file(file.text, "hosts") == two);
  }
  CHECK(parse_host_file("n1\nn2.cluster\r\n", "hosts") == Hosts{{"n1", 1}, {"n2.cluster", 1}});
  CHECK(parse_host_file("\xef\xbb\xbf"
                        "a:2\nme@b_1\n",
                        "hosts") == Hosts{{"a", 2}, {"me@b_1", 1}});
  CHECK(parse_host_file("n[1-2]:8\n", "hosts") == Hosts{{"n1", 8}, {"n2", 8}});
}

TEST_CASE("hosts: a line that is no host is named") {
  for (const char* wrong : {"a slots=x", "a slots=0", "a:0", "a slots=4 user=me", "a b", "slots=4",
                            "a -4", "a:2 ifname=eth1", "a,b", "a slots", "<html>",
                            "\xef\xbb\xbf"
                            "a",
                            "{", "a;b", ".a"}) {
    CAPTURE(wrong);
    CHECK(test::error_of([&] { parse_host_file(std::string("a:1\n") + wrong, "my.hosts"); }) ==
          fmt::format("my.hosts:2: expected a host, \"a\", \"a:4\" or \"a slots=4\", got \"{}\"",
                      wrong));
  }
  CHECK(test::error_of([] { parse_host_file("# none\n\n", "h"); }) ==
        "h: expected a host in each line, the file has none");
}

TEST_CASE("hosts: a file that is there, or one behind @") {
  const test::TempFolder folder;
  const std::string file = folder.write("hosts", "a slots=2\n").string();
  CHECK(read_hosts(file) == Hosts{{"a", 2}});
  CHECK(read_hosts("@" + file) == Hosts{{"a", 2}});
  CHECK(read_hosts("b:3") == Hosts{{"b", 3}});
  CHECK(test::contains(test::error_of([&] { read_hosts("@" + (folder / "absent").string()); }),
                       "absent: "));
  CHECK(test::contains(test::error_of([&] { read_hosts(folder.path().string()); }),
                       "--hosts: expected a file of hosts, got the folder"));
  CHECK(test::contains(test::error_of([&] { read_hosts("."); }), "got the folder ."));
  for (const char* absent : {"absent.txt", "absent.hosts"}) {
    CHECK(test::contains(test::error_of([&] { read_hosts(absent); }), absent));
    CHECK(test::contains(test::error_of([&] { read_hosts(absent); }), "cannot open"));
  }
}

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
      "expected a command after --"));
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
