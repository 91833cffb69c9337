// What the variables of the environment say about the launcher that started this process, and about
// the starts of the run before this one. Processes that torchrun, accelerate, DeepSpeed's launcher
// or submitit started, and neither MPI nor Slurm: each has a rank and a size, but no way to the
// others, so each would train alone. So it is where the launcher belongs to another MPI.
// Not here: the job of Slurm (batch_job.h), what OpenMP's variables say (openmp_variables.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp::tools {

using ReadVariable = std::function<const char*(const char* name)>;  // null: it is not set

// What the process that starts the ranks knows of the earlier starts of this run.
struct StartsBefore {
  int by_parent = 0;         // how often `fsdp launch` has started the job again
  int by_slurm = 0;          // and Slurm
  bool unattended = false;   // `fsdp launch` has started this process
  int64_t durable_step = 0;  // of the last checkpoint that `fsdp launch` has seen; 0: of none
  // Of the last start that came to a step, or of the first one, where `fsdp launch` has seen its
  // end: Unix time (0: not known), status (-1), and what the parent has to say about it ("").
  double ended = 0;
  int status = -1;
  std::string cause = {};

  int count() const { return by_parent + by_slurm; }
};
StartsBefore starts_before(const ReadVariable& getenv);
StartsBefore starts_before();
// "FSDP_RESTARTS=2": the variables by which `fsdp launch` says it to the ranks.
std::vector<std::string> variables_of(const StartsBefore& before);

// What the launcher's environment says.
struct LauncherEnvironment {
  bool started = false;  // by mpirun, srun, ...
  int rank = 0;
  int size = 0;               // 0: it does not say
  bool bound = false;         // it bound this process to cores
  bool without_pmix = false;  // srun did, and not with --mpi=pmix
  int foreign_size = 0;       // processes of torchrun and the like
};
LauncherEnvironment launcher_environment(const ReadVariable& getenv);

// How many foreign processes there are; 0: none. `launched`: processes that MPI or Slurm started,
// each of which may have started several; 0: none, or it does not say.
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
