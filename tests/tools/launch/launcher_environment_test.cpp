// Who is refused, and the lines that start the same job.
// Requirements: S1.21, S2.12, S3.13.
#include "tools/launch/launcher_environment.h"

#include <map>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

using Variables = std::map<std::string, std::string>;

ReadVariable reader(const Variables& variables) {
  return [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}
int size_of(const Variables& variables, bool started = false, int launched = 0) {
  return foreign_size(reader(variables), started, launched);
}
std::string refusal_of(const Variables& variables) {
  return foreign_refusal(reader(variables), size_of(variables),
                         {"build/fsdp", "train", "--config", "my config.yaml"});
}

TEST_CASE("foreign launcher: torchrun on two hosts") {
  Variables torch = {{"RANK", "5"},
                     {"WORLD_SIZE", "8"},
                     {"LOCAL_RANK", "1"},
                     {"LOCAL_WORLD_SIZE", "4"},
                     {"GROUP_WORLD_SIZE", "2"},
                     {"MASTER_ADDR", "node1"},
                     {"TORCHELASTIC_RUN_ID", "none"}};
  CHECK(refusal_of(torch) ==
        "RANK and WORLD_SIZE=8 are set, as by torchrun: this program's ranks find each other over "
        "MPI: mpirun -n 8 --host node1:4,HOST2:4 build/fsdp train --config 'my config.yaml'; under "
        "Slurm: srun -n 8 -N 2 --ntasks-per-node 4 --mpi=pmix build/fsdp train --config "
        "'my config.yaml'; where the variables are left over: env -u RANK -u WORLD_SIZE -u "
        "SUBMITIT_LOCAL_NTASKS -u TORCHELASTIC_RUN_ID fsdp ...");
  torch["SLURM_JOB_NODELIST"] = "node[1,7]";
  CHECK(test::contains(refusal_of(torch), "--host node1:4,node7:4 "));
  torch["SLURM_JOB_NODELIST"] = "node[1";
  CHECK(test::contains(refusal_of(torch), "--host node1:4,HOST2:4 "));
  torch["ACCELERATE_MIXED_PRECISION"] = "no";  // accelerate launch
  CHECK(test::contains(refusal_of(torch), "as by torchrun: "));
  torch["WORLD_SIZE"] = "40";
  CHECK(test::contains(refusal_of(torch), "mpirun -n 40 --hostfile FILE build"));
  CHECK(test::contains(refusal_of(torch), "srun -n 40 -N 10 --ntasks-per-node 4 "));
}

TEST_CASE("foreign launcher: DeepSpeed's, on one host") {
  const Variables deepspeed = {{"RANK", "0"},       {"WORLD_SIZE", "2"},
                               {"LOCAL_SIZE", "2"}, {"CROSS_SIZE", "1"},
                               {"CROSS_RANK", "0"}, {"MASTER_ADDR", "127.0.0.1"}};
  CHECK(test::contains(refusal_of(deepspeed),
                       "as by torchrun: this program's ranks find each other over MPI: mpirun -n "
                       "2 build/fsdp train"));
  CHECK(test::contains(refusal_of(deepspeed), "srun -n 2 --mpi=pmix build"));
}

TEST_CASE("foreign launcher: submitit, with and without PyTorch's variables") {
  Variables submitit = {{"SUBMITIT_EXECUTOR", "local"}, {"SUBMITIT_LOCAL_NTASKS", "3"}};
  CHECK(test::contains(refusal_of(submitit), "SUBMITIT_LOCAL_NTASKS=3 is set, as by submitit: "));
  submitit["RANK"] = "0";
  submitit["WORLD_SIZE"] = "6";
  submitit["LOCAL_WORLD_SIZE"] = "3";
  CHECK(test::contains(refusal_of(submitit), "RANK and WORLD_SIZE=6 are set, as by submitit: "));
  CHECK(test::contains(refusal_of(submitit), "mpirun -n 6 --host HOST1:3,HOST2:3 build"));
  CHECK(size_of(submitit, true, 6) == 0);  // under mpirun: set for others
}

TEST_CASE("foreign launcher: torchrun as the task of srun") {
  Variables torch = {{"RANK", "0"}, {"WORLD_SIZE", "8"}};
  CHECK(size_of(torch, true, 2) == 0);  // a person's
  torch["TORCHELASTIC_RUN_ID"] = "12";
  CHECK(size_of(torch, true, 1) == 8);
  CHECK(size_of(torch, true, 2) == 8);
  CHECK(size_of(torch, true, 8) == 0);
  CHECK(size_of(torch, true, 0) == 0);
  CHECK(size_of({}) == 0);
  CHECK(size_of({{"WORLD_SIZE", "4"}}) == 0);
}

TEST_CASE("foreign launcher: an MPI that does not connect what was started") {
  const auto refusal = [](const Variables& variables, int size) {
    return unconnected_refusal(reader(variables), size, 1, {"fsdp", "train", "--config", "a b"});
  };
  CHECK(refusal({{"FLUX_TASK_RANK", "0"}, {"PMI_RANK", "0"}}, 8) ==
        "flux started 8 processes but MPI connects 1: this program's MPI is another one (fsdp "
        "doctor says which): flux run -o pmi=pmix -n 8 fsdp train --config 'a b'");
  CHECK(test::contains(refusal({{"JSM_NAMESPACE_RANK", "0"}, {"PMIX_RANK", "0"}}, 6),
                       "jsrun started 6 processes but MPI connects 1"));
  CHECK(test::contains(refusal({{"JSM_NAMESPACE_RANK", "0"}}, 6),
                       ": mpirun -n 6 --hostfile $LSB_DJOB_HOSTFILE fsdp train"));
  CHECK(test::contains(refusal({{"PALS_RANKID", "3"}, {"PMI_RANK", "3"}}, 0),
                       "mpiexec of PALS started several processes but MPI connects 1"));
  CHECK(test::contains(refusal({{"ALPS_APP_PE", "3"}}, 0),
                       ": mpirun -n N --hostfile $PBS_NODEFILE fsdp train"));
  CHECK(test::contains(refusal({{"PMI_RANK", "0"}}, 2), ": mpirun -n 2 fsdp train"));
  CHECK(test::contains(refusal({{"SLURM_PROCID", "0"}}, 2), "srun --mpi=pmix"));
}

TEST_CASE("foreign launcher: the command of this process") {
  REQUIRE(!own_command().empty());
  CHECK(test::contains(own_command()[0], "test_"));
}

}  // namespace
}  // namespace fsdp::tools
