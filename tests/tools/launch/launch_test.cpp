// What the launcher's environment means, how ranks agree on an error.
// Requirements: S1.21, S2.12, S3.6.
#include "tools/launch/launch.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/machine_error.h"
#include "tests/support/environment.h"
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
  const struct {
    std::map<std::string, std::string> variables;
    int size, rank;
    bool started = true, bound = false;
  } cases[] = {{{{"HOME", "/root"}}, 0, 0, false},
               {{{"OMPI_COMM_WORLD_SIZE", "4"},
                 {"OMPI_COMM_WORLD_RANK", "3"},
                 {"PMIX_RANK", "3"},
                 {"OMPI_MCA_orte_bound_at_launch", "1"}},
                4,
                3,
                true,
                true},
               {{{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}, 2, 1},
               {{{"FLUX_JOB_SIZE", "8"}, {"FLUX_TASK_RANK", "5"}}, 8, 5},
               {{{"FLUX_JOB_SIZE", "2"},
                 {"FLUX_TASK_RANK", "1"},
                 {"OMPI_COMM_WORLD_SIZE", "4"},
                 {"OMPI_COMM_WORLD_RANK", "3"}},
                4,
                3},
               {{{"FLUX_JOB_SIZE", "8"},
                 {"FLUX_TASK_RANK", "5"},
                 {"SLURM_STEP_NUM_TASKS", "2"},
                 {"SLURM_PROCID", "1"}},
                8,
                5},
               {{{"JSM_NAMESPACE_SIZE", "6"}, {"JSM_NAMESPACE_RANK", "2"}}, 6, 2},
               {{{"MV2_COMM_WORLD_SIZE", "4"}, {"MV2_COMM_WORLD_RANK", "1"}}, 4, 1},
               {{{"PALS_RANKID", "3"}}, 0, 3},
               {{{"ALPS_APP_PE", "0"}}, 0, 0}};
  for (const auto& each : cases) {
    const LauncherEnvironment found = environment_of(each.variables);
    CAPTURE(each.variables.begin()->first);
    CHECK(found.started == each.started);
    CHECK(found.size == each.size);
    CHECK(found.rank == each.rank);
    CHECK(found.bound == each.bound);
  }
}

TEST_CASE("launch: what the parent and Slurm say of starts before this one") {
  const auto said = [](const std::map<std::string, std::string>& variables) {
    return starts_before([&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  const StartsBefore first = said({});
  CHECK(first.count() == 0);
  CHECK(first.ended == 0);
  CHECK(first.status == -1);
  CHECK(!first.unattended);
  const StartsBefore sent = {.by_parent = 2,
                             .durable_step = 5'000'000'000,
                             .ended = 1700000000.25,
                             .status = 137,
                             .cause = "it hung"};
  std::map<std::string, std::string> variables = {{"SLURM_RESTART_COUNT", "3"}};
  for (const std::string& text : variables_of(sent)) {
    variables[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  const StartsBefore again = said(variables);
  CHECK(again.count() == 5);
  CHECK(again.by_slurm == 3);
  CHECK(again.unattended);
  CHECK(again.durable_step == sent.durable_step);
  CHECK(again.ended == sent.ended);
  CHECK(again.status == 137);
  CHECK(again.cause == "it hung");
}

TEST_CASE("launch: a Slurm batch script is not srun") {
  CHECK(!environment_of({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}).started);
  const LauncherEnvironment step =
      environment_of({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}});
  CHECK(step.started);
  CHECK(step.size == 8);
  CHECK(step.rank == 5);
}

TEST_CASE("launch: srun with PMIx connects its processes, and so does mpirun inside of a step") {
  std::map<std::string, std::string> step = {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}};
  CHECK(environment_of(step).without_pmix);
  for (const char* other : {"PMI_RANK", "SLURM_MPI_TYPE"}) {  // srun --mpi=pmi2
    step[other] = "1";
    CHECK(environment_of(step).without_pmix);
  }
  for (const char* variable : {"PMIX_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE"}) {
    auto connected = step;
    connected[variable] = "1";
    CHECK_FALSE(environment_of(connected).without_pmix);
  }
  CHECK_FALSE(environment_of({{"SLURM_NTASKS", "2"}}).without_pmix);
}

TEST_CASE("launch: what libraries read from the environment is there when ranks begin") {
  const test::Environment order("NCCL_LAUNCH_ORDER_IMPLICIT", nullptr);
  const test::Environment queues("CUDA_DEVICE_MAX_CONNECTIONS", nullptr);
  const test::Environment sharing("NCCL_MULTI_RANK_GPU_ENABLE", nullptr);
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
  const test::Environment loading("CUDA_MODULE_LOADING", nullptr);
  set_up_environment({.local_ranks = 2});    // a GPU each
  set_up_environment({.share_gpus = true});  // processes
  set_up_environment({.local_ranks = 1, .share_gpus = true});
  CHECK(loading.now().empty());
  set_up_environment({.local_ranks = 2, .share_gpus = true});
  CHECK(loading.now() == (cuda::built() ? "EAGER" : ""));
}

TEST_CASE("launch: what the user has set stays") {
  const test::Environment order("NCCL_LAUNCH_ORDER_IMPLICIT", "0");
  const test::Environment queues("CUDA_DEVICE_MAX_CONNECTIONS", "8");
  const test::Environment sharing("NCCL_MULTI_RANK_GPU_ENABLE", "0");
  const test::Environment loading("CUDA_MODULE_LOADING", "LAZY");
  set_up_environment({.local_ranks = 2, .share_gpus = true, .gpu_transport = "nccl"});
  CHECK(sharing.now() == "0");
  CHECK(loading.now() == "LAZY");
  CHECK(order.now() == "0");
  CHECK(queues.now() == "8");
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
  // What is wrong with the configuration, before its backend is looked for.
  options.backend = "no such backend";
  const auto body = [](RankContext&) { return 0; };
  const auto refuse = [](comm::Communicator&) { throw AgreedError("a mistake", 5); };
  CHECK(launch(options, {.body = body, .first = refuse}) == 5);
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
  CHECK(environment_of(torch).foreign_size == 4);
  CHECK(environment_of(torch).rank == 2);                          // so that one of them says it
  CHECK(environment_of({{"WORLD_SIZE", "4"}}).foreign_size == 0);  // set by hand
  auto under_mpi = torch;
  under_mpi["OMPI_COMM_WORLD_SIZE"] = "4";
  under_mpi["OMPI_COMM_WORLD_RANK"] = "2";
  CHECK(environment_of(under_mpi).foreign_size == 0);  // a script that sets them for others
  const test::Environment rank("RANK", "0"), size("WORLD_SIZE", "4");
  CHECK(
      test::contains(test::error_of([] { launch({}, [](RankContext&) { return 0; }); }),
                     "as by torchrun: this program's ranks find each other over MPI: mpirun -n 4"));
  const test::Environment one("WORLD_SIZE", "1");
  int ranks = 0;
  CHECK(launch({}, [&](RankContext& context) { return ranks = context.world.size(), 0; }) == 0);
  CHECK(ranks == 1);
}

// Before the first step, where all ranks agree on an error: a GPU's fault may be gone when the run
// is started again, a mistake is not.
TEST_CASE(
    "a fault of a GPU on one rank ends all with the status of a failure, a mistake with its own") {
  const auto status_of = [](const auto& fault, const auto& of_other) {
    std::atomic<int> status = 0;
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      try {
        before_first_step([&] {
          agree(world, [&] {
            if (world.rank() == 1) throw fault;
            if (world.rank() == 0) of_other();
          });
        });
      } catch (const AgreedError& error) {
        status = error.status();
      }
    });
    return status.load();
  };
  const auto goes_well = [] {};
  CHECK(status_of(MachineError("the bus is gone"), goes_well) == status::kFailed);
  CHECK(status_of(Error("an option is wrong"), goes_well) == status::kMistake);
  // What the lower rank met is what the other one's fault has caused.
  CHECK(status_of(MachineError("the bus is gone"), [] { fail("the peer is gone"); }) ==
        status::kFailed);
}

}  // namespace
}  // namespace fsdp::tools
