// What this machine has, as far as any machine can tell, and the driver's own words.
// Requirements: S1.23.
#include "tools/doctor/library_facts.h"

#include <doctest/doctest.h>

#include "comm/mpi_transport.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools::doctor {
namespace {

TEST_CASE("driver: its version in /proc, of the closed and of the open module") {
  CHECK(driver_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19\n"
                       "GCC version:  gcc version 12.3.0\n") == "535.129.03");
  CHECK(driver_version("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  "
                       "Release Build  (root@host)\n") == "550.54.15");
  CHECK(driver_version("").empty());
}

TEST_CASE("libraries: GPUs or the reason, MPI or nothing of it") {
  const test::TempFolder root;
  std::filesystem::create_directories(root / "proc/driver/nvidia");
  root.write("proc/driver/nvidia/version", "NVRM version: Module  1.2.3  Thu\n");
  const GpuFacts facts = read_gpu_facts(root.path());
  CHECK(facts.gpus.empty() == !facts.no_gpus.empty());
  CHECK(facts.driver == "1.2.3");
  const MpiFacts mpi = read_mpi_facts(root.path());
  CHECK(mpi.mpi.version.empty() == !comm::MpiRuntime::available());
  if (mpi.mpi.version.empty()) CHECK(mpi.mpirun.empty());
}

}  // namespace
}  // namespace fsdp::tools::doctor
