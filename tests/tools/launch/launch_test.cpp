// What the launcher's environment means, how many threads a rank gets, how ranks agree on an error.
// Requirements: S1.21, S2.12, S3.6.
#include "tools/launch/launch.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

LauncherEnvironment environment_of(const std::map<std::string, std::string>& variables) {
  return launcher_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST_CASE("launch: the environment of the launchers") {
  const LauncherEnvironment none = environment_of({{"HOME", "/root"}});
  CHECK(!none.started);
  CHECK(none.rank == 0);
  CHECK(none.size == 0);

  const LauncherEnvironment open_mpi = environment_of({{"OMPI_COMM_WORLD_SIZE", "4"},
                                                       {"OMPI_COMM_WORLD_RANK", "3"},
                                                       {"PMIX_RANK", "3"},
                                                       {"OMPI_MCA_orte_bound_at_launch", "1"}});
  CHECK(open_mpi.started);
  CHECK(open_mpi.size == 4);
  CHECK(open_mpi.rank == 3);
  CHECK(open_mpi.bound);

  const LauncherEnvironment mpich = environment_of({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}});
  CHECK(mpich.started);
  CHECK(mpich.size == 2);
  CHECK(mpich.rank == 1);
  CHECK(!mpich.bound);
}

TEST_CASE("launch: a Slurm batch script is not srun") {
  CHECK(!environment_of({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}).started);
  const LauncherEnvironment step =
      environment_of({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}});
  CHECK(step.started);
  CHECK(step.size == 8);
  CHECK(step.rank == 5);
}

// Values that were there before come back.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Environment() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  std::string now() const {
    const char* value = std::getenv(name_);
    return value ? value : "";
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST_CASE("launch: what libraries read from the environment is there when ranks begin") {
  const Environment order("NCCL_LAUNCH_ORDER_IMPLICIT", nullptr);
  const Environment queues("CUDA_DEVICE_MAX_CONNECTIONS", nullptr);
  const Environment sharing("NCCL_MULTI_RANK_GPU_ENABLE", nullptr);
  LaunchOptions options = {.local_ranks = 2, .threads = 1, .backend = "cpu"};
  std::atomic<int> ranks{0};
  const auto look = [&](RankContext&) {
    ranks += order.now() == "1" && queues.now() == (cuda::built() ? "32" : "");
    return 0;
  };
  CHECK(launch(options, look) == 0);
  CHECK(ranks == 2);
  CHECK(sharing.now().empty());

  set_up_environment({.share_gpus = true});  // through the host: not NCCL's business
  set_up_environment({.gpu_transport = "nccl"});
  CHECK(sharing.now().empty());
  set_up_environment({.share_gpus = true, .gpu_transport = "nccl"});
  CHECK(sharing.now() == "1");
}

TEST_CASE("launch: kernels are loaded before ranks that share a context can wait for each other") {
  const Environment loading("CUDA_MODULE_LOADING", nullptr);
  set_up_environment({.local_ranks = 2});    // a GPU each
  set_up_environment({.share_gpus = true});  // processes
  set_up_environment({.local_ranks = 1, .share_gpus = true});
  CHECK(loading.now().empty());
  set_up_environment({.local_ranks = 2, .share_gpus = true});
  CHECK(loading.now() == (cuda::built() ? "EAGER" : ""));
}

TEST_CASE("launch: what the user has set stays") {
  const Environment order("NCCL_LAUNCH_ORDER_IMPLICIT", "0");
  const Environment queues("CUDA_DEVICE_MAX_CONNECTIONS", "8");
  const Environment sharing("NCCL_MULTI_RANK_GPU_ENABLE", "0");
  const Environment loading("CUDA_MODULE_LOADING", "LAZY");
  set_up_environment({.local_ranks = 2, .share_gpus = true, .gpu_transport = "nccl"});
  CHECK(sharing.now() == "0");
  CHECK(loading.now() == "LAZY");
  CHECK(order.now() == "0");
  CHECK(queues.now() == "8");
}

TEST_CASE("launch: threads share the cores") {
  const auto threads = [](int requested, const CoreSharing& cores) {
    return choose_threads(requested, cores).threads;
  };
  CHECK(threads(0, {.usable = 16, .of_machine = 16, .ranks = 1}) == 16);
  CHECK(threads(0, {.usable = 16, .of_machine = 16, .ranks = 4, .ranks_on_host = 4}) == 4);
  CHECK(threads(0, {.usable = 2, .of_machine = 2, .ranks = 3, .ranks_on_host = 3}) == 1);
  CHECK(threads(0, {.usable = 7, .of_machine = 8, .ranks = 2, .ranks_on_host = 2}) == 3);
  CHECK(threads(5, {.usable = 16, .of_machine = 16, .ranks = 4, .ranks_on_host = 4}) == 5);
}

TEST_CASE("launch: warnings about threads") {
  const auto warning = [](int requested, const CoreSharing& cores) {
    return choose_threads(requested, cores).warning;
  };
  // All cores in use, one each.
  CHECK(warning(0, {.usable = 1,
                    .of_machine = 2,
                    .ranks = 1,
                    .ranks_on_host = 2,
                    .bound_by_launcher = true}) == "");
  CHECK(warning(1, {.usable = 2, .of_machine = 2, .ranks = 2, .ranks_on_host = 2}) == "");
  // More threads than the launcher allows.
  CHECK(test::contains(warning(4, {.usable = 1,
                                   .of_machine = 8,
                                   .ranks = 1,
                                   .ranks_on_host = 2,
                                   .bound_by_launcher = true}),
                       "4 threads per rank, but the launcher bound each rank to 1 of 8 cores; "
                       "give mpirun --bind-to none"));
  // Cores left idle by the launcher.
  CHECK(test::contains(warning(0, {.usable = 1,
                                   .of_machine = 8,
                                   .ranks = 1,
                                   .ranks_on_host = 2,
                                   .bound_by_launcher = true}),
                       "--bind-to none"));
  // A container has fewer cores than its machine: no launcher to blame.
  CHECK(warning(0, {.usable = 2, .of_machine = 64, .ranks = 1}) == "");
  // More ranks than cores is the user's wish, more threads than cores is not.
  CHECK(warning(0, {.usable = 2, .of_machine = 2, .ranks = 3, .ranks_on_host = 3}) == "");
  CHECK(test::contains(warning(2, {.usable = 2, .of_machine = 2, .ranks = 3, .ranks_on_host = 3}),
                       "3 ranks of 2 threads share 2 cores"));
  CHECK(warning(1, {.usable = 2, .of_machine = 2, .ranks = 4, .ranks_on_host = 4}) ==
        "4 ranks share 2 cores: fewer ranks are faster");
}

TEST_CASE(
    "launch: OMP_NUM_THREADS is the default number of threads, and a note says what it costs") {
  const CoreSharing sixteen = {.usable = 16, .of_machine = 16, .ranks = 2, .ranks_on_host = 2};
  ThreadChoice choice = choose_threads(0, sixteen, "1");
  CHECK(choice.threads == 1);
  CHECK(choice.note ==
        "OMP_NUM_THREADS=1: 1 thread a rank; 14 of 16 cores stay idle, --threads 8 uses them");
  CHECK(choice.warning == "");
  choice = choose_threads(0, sixteen, "8,2");  // the second number is for nested teams
  CHECK(choice.threads == 8);
  CHECK(choice.note == "OMP_NUM_THREADS=8: 8 threads a rank");
  choice = choose_threads(0, sixteen, "12");
  CHECK(choice.threads == 12);
  CHECK(test::contains(choice.warning, "2 ranks of 12 threads share 16 cores"));
  CHECK(choice.note == "OMP_NUM_THREADS=12: 12 threads a rank");
  // --threads counts more; without either, the cores are shared out.
  choice = choose_threads(5, sixteen, "1");
  CHECK(choice.threads == 5);
  CHECK(choice.note == "");
  for (const char* not_set : {static_cast<const char*>(nullptr), ""}) {
    choice = choose_threads(0, sixteen, not_set);
    CHECK(choice.threads == 8);
    CHECK(choice.note == "");
  }
  const CoreSharing nobody = {.usable = 16, .of_machine = 16, .ranks = 0, .ranks_on_host = 0};
  CHECK(test::contains(choose_threads(0, nobody, "1").note, "--threads 16 uses them"));
  for (const char* wrong : {"0", "-1", "two", "4x", "1025"}) {
    CHECK(test::error_of([&] { choose_threads(0, sixteen, wrong); }) ==
          fmt::format("OMP_NUM_THREADS: expected a number from 1 to 1024, got \"{}\"", wrong));
    CHECK(choose_threads(2, sixteen, wrong).threads == 2);
  }
}

// What each of `ranks` ranks learns when those in `failing` fail with "broken".
std::vector<std::string> agreed_messages(int ranks, const std::vector<int>& failing) {
  std::vector<std::string> learned(static_cast<size_t>(ranks));
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    try {
      agree(world, [&] {
        for (const int rank : failing) {
          if (rank == world.rank()) fail("broken");
        }
      });
    } catch (const AgreedError& error) {
      learned[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  return learned;
}

TEST_CASE("launch: an error of one rank reaches all, one of all is said without a rank") {
  CHECK(agreed_messages(3, {}) == std::vector<std::string>{"", "", ""});
  const std::string second = "rank 1: broken";
  CHECK(agreed_messages(3, {1}) == std::vector<std::string>{second, second, second});
  CHECK(agreed_messages(3, {1, 2}) == std::vector<std::string>{second, second, second});
  CHECK(agreed_messages(2, {0, 1}) == std::vector<std::string>{"broken", "broken"});
  CHECK(agreed_messages(1, {0}) == std::vector<std::string>{"broken"});
}

TEST_CASE("launch: settings that differ are named on all ranks, with both values") {
  const auto learned = [](const std::vector<std::string>& second) {
    std::vector<std::string> messages(3);
    comm::run_local_ranks(3, [&](comm::Communicator& world) {
      const auto rank = static_cast<size_t>(world.rank());
      const std::vector<std::string> first = {"command: eval", "--batch: 4", "--data: a: b"};
      messages[rank] = test::error_of(
          [&] { check_same_settings(world, "options", rank == 1 ? second : first); });
    });
    CHECK(messages[1] == messages[0]);
    CHECK(messages[2] == messages[0]);
    return messages[0];
  };
  CHECK(learned({"command: eval", "--batch: 4", "--data: a: b"}) == "");
  CHECK(learned({"command: eval", "--batch: 6", "--data: a: c"}) ==
        "ranks have different options: --batch: 4 on rank 0, 6 on rank 1");
  CHECK(learned({"command: eval", "--batch: 4", "--data: a: c"}) ==
        "ranks have different options: --data: a: b on rank 0, a: c on rank 1");
  CHECK(learned({"command: step"}) ==
        "ranks have different options: command: eval on rank 0, step on rank 1");
}

TEST_CASE("launch: ranks as threads, their status") {
  LaunchOptions options;
  options.local_ranks = 3;
  std::atomic<int> sum{0};
  CHECK(launch(options, [&](RankContext& rank) {
          sum += rank.world.rank() + 10 * rank.world.size();
          CHECK(rank.local_ranks == 3);
          return 0;
        }) == 0);
  CHECK(sum == 93);
  CHECK(launch(options, [](RankContext& rank) { return rank.world.rank() == 1 ? 7 : 0; }) == 7);
}

TEST_CASE("launch: an error of the file system is said as any other") {
  const auto code = std::make_error_code(std::errc::permission_denied);
  CHECK(message_of(std::filesystem::filesystem_error("status", "/a/b", code)) ==
        "/a/b: Permission denied");
  CHECK(message_of(Error("plain")) == "plain");
}

TEST_CASE("launch: a rank that fails ends those that wait for it") {
  LaunchOptions options;
  options.local_ranks = 3;
  std::atomic<int> ended{0};
  CHECK(launch(options, [&](RankContext& rank) {
          if (rank.world.rank() == 1) fail("this line is part of the test");
          rank.world.barrier();
          ++ended;
          return 0;
        }) == 1);
  CHECK(ended == 0);
}

TEST_CASE("launch: one rank per host builds what the host shares") {
  std::atomic<int> first{0};
  comm::run_local_ranks(3, [&](comm::Communicator& world) {
    if (first_rank_of_host(world)) first += 1 + world.rank();
  });
  CHECK(first == 1);  // only rank 0
}

TEST_CASE("launch: torchrun's processes cannot find each other, and do not train alone") {
  const std::map<std::string, std::string> torch = {{"WORLD_SIZE", "4"}, {"RANK", "2"}};
  CHECK(environment_of(torch).torch_size == 4);
  CHECK(environment_of({{"WORLD_SIZE", "4"}}).torch_size == 0);  // set by hand
  auto under_mpi = torch;
  under_mpi["OMPI_COMM_WORLD_SIZE"] = "4";
  under_mpi["OMPI_COMM_WORLD_RANK"] = "2";
  CHECK(environment_of(under_mpi).torch_size == 0);  // a script that sets them for others
  const Environment rank("RANK", "0"), size("WORLD_SIZE", "4");
  CHECK(
      test::contains(test::error_of([] { launch({}, [](RankContext&) { return 0; }); }),
                     "as by torchrun: this program's ranks find each other over MPI: mpirun -n 4"));
  const Environment one("WORLD_SIZE", "1");
  int ranks = 0;
  CHECK(launch({}, [&](RankContext& context) { return ranks = context.world.size(), 0; }) == 0);
  CHECK(ranks == 1);
}

}  // namespace
}  // namespace fsdp::tools
