// The command that starts the ranks of a job. Read next: parent.h. Not here: what a rank finds out
// about its launcher (tools/launch/launch.h), a job that waits in a queue (slurm_script.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tools/jobs/host_file.h"

namespace fsdp::tools {

enum class Launcher : uint8_t {
  kLocal,   // ranks as threads of one process
  kMpirun,  // ranks as processes, started by mpirun
  kSrun,    // ranks as processes, started by srun inside a job of Slurm
};

struct Job {
  Launcher launcher = Launcher::kLocal;
  int ranks = 0;                       // 0: as many as the hosts have
  std::vector<HostSlots> hosts = {};   // of mpirun; none: this one, or those of the batch system
  std::string program;                 // fsdp
  std::vector<std::string> arguments;  // "train", ...

  int all_ranks() const;
};

// What of this machine decides the command. The other hosts are taken for machines like it.
struct JobHost {
  int cores = 1;  // that this process may use
  bool root = false;
  std::vector<std::string> variables = {};  // names of the environment
  std::vector<int> gpu_nodes = {};          // the NUMA node of each GPU, by PCI address
  int slurm_ranks = 0;                      // that Slurm wants on this host; 0: it does not say
  int slurm_cores = 0;                      // of a rank, likewise
  std::string srun_plugin = {};             // for srun --mpi=
};
JobHost this_host(const Job& job);

// The words of the command. `restarts`: the job goes on where it was. Error where the job does not
// fit its hosts.
std::vector<std::string> command_of(const Job& job, const JobHost& host, bool goes_on);
// The values of an option: "--set a b" has two, "--set=a" one.
std::vector<std::string> values_of(const std::vector<std::string>& words,
                                   const std::string& option);
// Where the run of a job goes on, and how long nobody in it waits for another one in vain.
struct JobRun {
  std::filesystem::path directory;
  std::chrono::seconds timeout{600};  // runtime.timeout_s
};
// Error unless the job can be started again: it is `train` with a runtime.run_dir.
JobRun run_of(const Job& job);

}  // namespace fsdp::tools
