// Running the cases of a sweep, one run after the other, each as a job of its own
// (tools/jobs/parent.h): what fails is a row of the table, and what has run already is not run
// again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/jobs/job.h"
#include "tools/sweep/sweep_folder.h"

namespace fsdp::tools {

struct SweepOptions {
  std::filesystem::path out;
  Launcher launcher = Launcher::kLocal;
  std::vector<HostSlots> hosts = {};  // of mpirun
  std::string program = {};           // fsdp
  std::string command = {};           // of the whole sweep, which makes the table again
  std::function<void(const std::string& line)> say;
};

// Returns the status of the process: 0, 1 where a case has failed, or that of a job that was
// interrupted. The table of what there is has been written then, in any case. The folder has the
// configurations of the cases already (SweepFolder::settle).
int run_sweep(const Recipe& recipe, const std::vector<SweepCase>& cases,
              const SweepOptions& options);

// Those of the recipe, or the usual ones.
std::vector<RunColumn> columns_of(const Recipe& recipe, const std::vector<SweepCase>& cases);

// Why a run has ended, by what it has printed: its error, of a refusal with what would fit.
std::string reason_in(const std::string& log);

}  // namespace fsdp::tools
