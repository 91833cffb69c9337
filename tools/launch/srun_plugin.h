// How srun connects ranks: with a plugin of its own, by what it says. Not here: the command that
// starts ranks with it (tools/jobs/job.h).
#pragma once

#include <optional>
#include <string>

namespace fsdp::tools {

// For srun --mpi=, by what `srun --mpi=list` prints; "": no plugin connects the ranks.
// `without_pmix`: the MPI of this program speaks to srun without PMIx (PMI2).
std::string srun_plugin(const std::string& listed, bool without_pmix);
// By this machine's srun; nullopt: it has none, or none that answers.
std::optional<std::string> asked_srun_plugin();

}  // namespace fsdp::tools
