// Lists that srun prints.
#include "tools/launch/srun_plugin.h"

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

TEST_CASE("srun: which plugin of srun connects ranks") {
  CHECK(srun_plugin("MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin "
                    "versions available: pmix_v4\n",
                    true) == "pmix");
  CHECK(srun_plugin("srun: MPI types are...\nsrun: pmi2\nsrun: none\nsrun: pmix_v3\n", true) ==
        "pmix_v3");
  CHECK(srun_plugin("\tpmi2\n\tnone\n", true) == "pmi2");
  CHECK(srun_plugin("\tpmi2\n\tnone\n", false).empty());
  CHECK(srun_plugin("", true).empty());
  CHECK(srun_plugin("sh: 1: /opt/mpi_pmix/srun: not found\n", false).empty());
}

}  // namespace
}  // namespace fsdp::tools
