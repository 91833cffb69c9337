// Whether an Open MPI can connect processes that srun started without PMIx. Open MPI 4 ends a
// process that it cannot connect, in MPI_Init, and says much about it: so this is asked before. Not
// here: whether srun started this process (tools/launch).
#pragma once

#include <filesystem>

namespace fsdp::comm {

// `library`: the file of libmpi. Open MPI's plug-ins lie below a folder beside it: openmpi, or
// openmpi/lib/openmpi3. Those for Slurm's own protocols, PMI-1 and PMI-2, are there only where it
// was built with them. True also where it cannot be told: plug-ins may be a part of the library,
// and Open MPI 5 has none for PMIx.
bool may_reach_slurm(const std::filesystem::path& library);

}  // namespace fsdp::comm
