// Processes that torchrun, accelerate, DeepSpeed's launcher or submitit started, and neither MPI
// nor Slurm: each has a rank and a size, but no way to the others, so each would train alone. So it
// is where the launcher belongs to another MPI. Not here: what MPI and Slurm say
// (launcher_environment() in launch.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace fsdp::tools {

using ReadVariable = std::function<const char*(const char* name)>;  // null: it is not set

// How many such processes there are; 0: none. `launched`: processes that MPI or Slurm started, each
// of which may have started several; 0: none, or it does not say.
int foreign_size(const ReadVariable& getenv, bool started, int launched);

// Why they are refused, and the lines of mpirun and of srun that start the same job. `command`:
// this process's program and arguments.
std::string foreign_refusal(const ReadVariable& getenv, int size,
                            const std::vector<std::string>& command);

// Why processes are refused that a launcher started, but that this program's MPI does not connect:
// flux, jsrun, aprun, or an mpiexec of another MPI. `size`: 0 where the launcher does not say it.
std::string unconnected_refusal(const ReadVariable& getenv, int size, int connected,
                                const std::vector<std::string>& command);

std::vector<std::string> own_command();

}  // namespace fsdp::tools
