// The command that starts the ranks of a job; its hosts and how many ranks each gets, as people
// have them: a list, or a file of Open MPI, MPICH, Intel MPI, DeepSpeed, PBS, LSF, Grid Engine or
// `scontrol show hostnames`. Read next: parent.h. Not here: what a rank finds out about its
// launcher (tools/launch/launch.h), a job that waits in a queue (batch_file.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace fsdp::tools {

struct HostSlots {
  std::string host;
  int ranks = 1;
  bool operator==(const HostSlots&) const = default;
};

// "a:4,b[1-3]:4,c" (of c: one). Error that names the part which is wrong.
std::vector<HostSlots> parse_hosts(const std::string& text);

// A host a line: "a", "a:4", "a slots=4", "a 4"; "#" begins a comment. A name that comes again has
// more ranks. Error with `place` and the line.
std::vector<HostSlots> parse_host_file(const std::string& text, const std::string& place);

// What --hosts says: "@FILE", or a name that is there or ends with .txt or .hosts, else a list.
std::vector<HostSlots> read_hosts(const std::string& given);

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
