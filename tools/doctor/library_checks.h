// Whether GPUs, their libraries, MPI and the launchers fit each other: a function of the facts.
// Where there is no GPU, what serves GPUs is not looked for. Not here: the facts
// (library_facts.h); whether hosts are alike (job_checks.h).
#pragma once

#include <vector>

#include "tools/doctor/check.h"
#include "tools/doctor/library_facts.h"

namespace fsdp::tools::doctor {

std::vector<Check> gpu_checks(const GpuFacts& facts);
// `launched`: by mpirun or srun, which therefore have what they need.
std::vector<Check> mpi_checks(const MpiFacts& facts, bool launched);

}  // namespace fsdp::tools::doctor
