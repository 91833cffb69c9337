// The hosts of a job, looked at before it: each by the first of its ranks, all at once. Every look
// has a time limit, so that a host that does not answer is a failed check and no table that never
// comes. Read next: check.h. Not here: options and output (tools/commands/doctor.cpp).
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "tools/doctor/checks.h"

namespace fsdp::tools::doctor {

struct DoctorOptions {
  std::string program;                 // "fsdp 0.1.0, commit 0123456789ab": of this rank
  std::filesystem::path folder = ".";  // that the hosts should share
  std::vector<Expectation> expected;
  std::chrono::milliseconds limit{30'000};  // of one look
  bool launched = false;                    // by mpirun or srun
};
// The same on every rank. Collective.
std::vector<HostReport> examine(comm::Communicator& world, const DoctorOptions& options);

}  // namespace fsdp::tools::doctor
