// A host with eight GPUs, one without, and libraries that do not fit.
// Requirements: S1.23.
#include <algorithm>

#include <doctest/doctest.h>

#include "tools/doctor/checks.h"

namespace fsdp::tools::doctor {
namespace {

GpuFacts healthy() {
  GpuFacts facts;
  facts.cuda_built = true;
  facts.gpus.assign(8, {.name = "NVIDIA H100", .numa_node = 0, .nvlinks = 18});
  facts.driver = "535.129.03";
  facts.cuda = {.driver = 13000, .runtime = 12040, .cublas = 120400, .cudnn = 91900};
  facts.nccl = 23007;
  return facts;
}

MpiFacts healthy_mpi() {
  return {.mpi = {.version = "Open MPI v4.1.4", .file = "/opt/openmpi/lib/libmpi.so.40"},
          .pmix = "OpenPMIx 4.2.2",
          .mpirun = "mpirun (Open MPI) 4.1.6"};
}

Check only_fault(std::vector<Check> faults) {
  std::erase_if(faults, [](const Check& check) { return check.state == State::kOk; });
  REQUIRE(faults.size() == 1);
  return faults[0];
}
Check only_fault(const GpuFacts& facts) { return only_fault(gpu_checks(facts)); }
Check only_fault(const MpiFacts& facts) { return only_fault(mpi_checks(facts, false)); }

std::string value_of(const std::vector<Check>& checks, std::string_view name) {
  return std::ranges::find(checks, name, &Check::name)->value;
}
std::string value_of(const GpuFacts& facts, std::string_view name) {
  return value_of(gpu_checks(facts), name);
}
std::string value_of(const MpiFacts& facts, std::string_view name) {
  return value_of(mpi_checks(facts, false), name);
}

TEST_CASE("GPUs and libraries that fit") {
  for (const Check& check : gpu_checks(healthy())) {
    CAPTURE(check.name);
    CHECK(check.state == State::kOk);
    CHECK(check.fix.empty());
  }
  CHECK(value_of(healthy(), "GPUs") == "8 x NVIDIA H100");
  CHECK(value_of(healthy(), "driver") == "535.129.03");
  CHECK(value_of(healthy(), "CUDA") == "12.4 (the driver knows 13.0), cuBLASLt 120400");
  CHECK(value_of(healthy(), "cuDNN") == "9.19.0");
  CHECK(value_of(healthy(), "NCCL") == "2.30.7");
  CHECK(value_of(healthy(), "NVLink") ==
        "18 links of each GPU; their NUMA nodes: 0, 0, 0, 0, 0, 0, 0, 0");
  CHECK(gpu_checks(healthy())[0].number == 8);
}

TEST_CASE("no GPU is no fault, unless the host has a driver for one") {
  GpuFacts facts = healthy();
  facts.gpus.clear();
  facts.driver.clear();
  facts.cuda_built = false;
  facts.no_gpus = "this program was built without CUDA";
  for (const Check& check : gpu_checks(facts)) CHECK(check.state == State::kOk);
  CHECK(value_of(facts, "GPUs") == "none: this program was built without CUDA");
  CHECK(gpu_checks(facts)[0].number == 0);
  for (const char* name : {"driver", "CUDA", "cuDNN", "NCCL", "NVLink"}) {
    CHECK(value_of(facts, name) == "none");
  }
  facts.hidden = false;  // as in a container, which has the GPU's file alone
  CHECK(only_fault(facts).fix == "tools/setup.sh --cuda && make CUDA=1");
  facts.hidden = true;
  facts.driver = "535.129.03";
  CHECK(only_fault(facts).fix == "tools/setup.sh --cuda && make CUDA=1");
  facts.cuda_built = true;
  facts.no_gpus =
      "GPU 0 (X) has no code: none runs on this GPU; make CUDA=1 CUDA_ARCH=120 builds code for it";
  CHECK(only_fault(facts).fix == "make CUDA=1 CUDA_ARCH=120");
  facts.no_gpus = "there is no NVIDIA driver (libcuda.so.1)";
  CHECK(only_fault(facts).fix == "apt-get install nvidia-driver   # and start the host again");
  facts.no_gpus = "system not yet initialized";
  CHECK(only_fault(facts).fix == "systemctl restart nvidia-fabricmanager");
  facts.no_gpus = "the NVIDIA driver knows CUDA 12.4 and is older than this program's CUDA 13.0";
  CHECK(only_fault(facts).fix == "apt-get install nvidia-driver   # and start the host again");
  facts.no_gpus = "the NVIDIA driver shows this process no GPU";  // a login node
  for (const Check& check : gpu_checks(facts)) CHECK(check.state == State::kOk);
}

TEST_CASE("libraries that are not there, or too old") {
  GpuFacts facts = healthy();
  facts.cuda.driver = 11080;
  CHECK(only_fault(facts).name == "CUDA");
  CHECK(only_fault(facts).state == State::kFail);
  facts = healthy();
  facts.cuda.cublas = 0;
  CHECK(only_fault(facts).value == "12.4 (the driver knows 13.0), cuBLASLt 0: not found");
  facts = healthy();
  facts.no_cudnn = "[cuDNN] not found";
  facts.cuda.cudnn = 0;
  CHECK(only_fault(facts).value == "[cuDNN] not found");
  CHECK(only_fault(facts).state == State::kWarn);
  facts = healthy();
  facts.nccl = 0;
  facts.no_nccl = "[NCCL] not found";
  CHECK(only_fault(facts).name == "NCCL");
}

TEST_CASE("a GPU with fewer links than its neighbours") {
  GpuFacts facts = healthy();
  facts.gpus.resize(3);
  facts.gpus[1].nvlinks = 17;
  CHECK(only_fault(facts).value == "links of the GPUs: 18, 17, 18; their NUMA nodes: 0, 0, 0");
  CHECK(only_fault(facts).number == 17);
  CHECK(only_fault(facts).state == State::kWarn);
}

TEST_CASE("GPUs of two kinds have their own numbers of links") {
  GpuFacts facts = healthy();
  facts.gpus[0] = {.name = "a display's GPU"};
  for (const Check& check : gpu_checks(facts)) CHECK(check.state == State::kOk);
  CHECK(value_of(facts, "NVLink").starts_with("links of the GPUs: 0, 18, 18"));
}

TEST_CASE("launchers that fit the MPI, and others") {
  for (const Check& check : mpi_checks(healthy_mpi(), false)) {
    CAPTURE(check.name);
    CHECK(check.state == State::kOk);
    CHECK(check.fix.empty());
  }
  CHECK(value_of(healthy_mpi(), "srun") == "none");
  MpiFacts facts = healthy_mpi();
  facts.mpirun = "mpirun (Open MPI) 5.0.3";
  CHECK(only_fault(facts).state == State::kFail);
  CHECK(only_fault(facts).value == "mpirun (Open MPI) 5.0.3, but this program has Open MPI v4.1.4");
  CHECK(only_fault(facts).fix ==
        "module load openmpi/4.1.4   # its mpirun must come first in PATH");
  facts.own_mpirun = "/opt/openmpi/bin/mpirun";
  CHECK(only_fault(facts).fix == "export PATH=/opt/openmpi/bin:$PATH");
  facts.mpirun = "HYDRA build details:";
  CHECK(only_fault(facts).name == "mpirun");
  // Nobody needs it where the ranks are connected, or srun connects them.
  CHECK(only_fault(mpi_checks(facts, true)).state == State::kWarn);
  facts.srun = "pmix_v3";
  CHECK(only_fault(facts).state == State::kWarn);
  CHECK(value_of(facts, "srun") == "--mpi=pmix_v3");
  facts.mpirun.clear();
  CHECK(value_of(facts, "mpirun") == "none");
  facts.srun = "";
  CHECK(only_fault(facts).value == "has no PMIx");
  facts = healthy_mpi();
  facts.mpi = {};
  CHECK(value_of(facts, "MPI") == "none: this program was built without MPI");
  facts = healthy_mpi();
  facts.pmix.clear();
  CHECK(value_of(facts, "PMIx") == "a part of MPI");
}

}  // namespace
}  // namespace fsdp::tools::doctor
