// Open MPI's plug-ins beside its library.
#include "comm/slurm_plugins.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::comm {
namespace {

TEST_CASE("Slurm's plug-ins: there, not there, or it cannot be told") {
  const test::TempFolder folder;
  const std::filesystem::path library = folder / "libmpi.so.40";
  CHECK(may_reach_slurm(library));  // no plug-ins: they are a part of the library
  CHECK(may_reach_slurm("/nowhere/libmpi.so"));
  std::filesystem::create_directories(folder / "openmpi3");
  folder.write("openmpi3/mca_btl_tcp.so", "");
  CHECK(may_reach_slurm(library));
  folder.write("openmpi3/mca_pmix_ext3x.so", "");
  folder.write("openmpi3/mca_pmix_isolated.so", "");
  CHECK_FALSE(may_reach_slurm(library));
  folder.write("openmpi3/mca_pmix_s2.so", "");
  CHECK(may_reach_slurm(library));
  const test::TempFolder debian;
  std::filesystem::create_directories(debian / "openmpi/lib/openmpi3");
  debian.write("openmpi/lib/openmpi3/mca_pmix_flux.so", "");
  CHECK_FALSE(may_reach_slurm(debian / "libmpi.so.40"));
  debian.write("openmpi/lib/openmpi3/mca_pmix_s1.so", "");
  CHECK(may_reach_slurm(debian / "libmpi.so.40"));
}

}  // namespace
}  // namespace fsdp::comm
