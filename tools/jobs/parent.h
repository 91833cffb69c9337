// The process above the ranks of a job: it passes signals on, waits for the job's end, and starts
// it again. It computes nothing and holds no file of the run, so that little can end it. Not here:
// what is started (job.h), whether it is started again (restarts.h).
#pragma once

#include <functional>
#include <string>

#include "tools/jobs/job.h"
#include "tools/jobs/restarts.h"

namespace fsdp::tools {

struct ParentOptions {
  Job job;
  RestartLimits restarts;
  std::filesystem::path run_directory;  // empty: the job is not started again
  // How long the job may show no sign of life (a process that is stopped, a progress.json that
  // stays as it is) before it is ended; see JobRun.
  std::chrono::seconds silence{600};
  std::chrono::milliseconds beat{1000};  // how often it looks at the job, and at its directory
  // Files that the job's output is appended to; empty: it is this process's.
  std::filesystem::path output = {}, errors = {};
  std::function<void(const std::string& line)> say;
};
struct JobResult {
  int status = 0;  // of the last start or, where a signal has killed the job, 128 + the signal
  int asked = 0;   // the first signal that asked the parent to stop, or 0
};
// Error where the command cannot be started.
JobResult run_job(const ParentOptions& options);
// Its status alone.
int keep_running(const ParentOptions& options);

// The files of Open MPI's mpirun that was killed, with the command that removes them; "": none.
std::string leftovers_note(const std::filesystem::path& shared_memory,
                           const std::filesystem::path& temporary, unsigned user);

}  // namespace fsdp::tools
