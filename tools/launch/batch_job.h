// What Slurm says: the job that this process is part of, by the variables of its environment (man
// sbatch, "output environment variables"); its hosts, and the hosts on which no rank runs; how srun
// connects ranks. Slurm names hosts in short: "a[01-03,07],login" is a01, a02, a03, a07, login (its
// man pages: sinfo, "hostlist"). Not here: writing such a job, the command that starts ranks with
// srun (tools/jobs), how ranks find each other (comm/mpi_transport.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::tools {

using GetVariable = std::function<const char*(const char* name)>;

struct BatchJob {
  std::string id;
  std::string array, task;  // "": the job is not one of an array
  std::string nodes;        // "n[0-3]"
  int restarts = 0;         // how often Slurm has started it again
};
std::optional<BatchJob> batch_job(const GetVariable& getenv);
std::optional<BatchJob> batch_job();

// When the time of the job is over, in Unix time; 0: there is no job, it has no limit, or nobody
// knows. SLURM_JOB_END_TIME, which newer versions set; else what `ask` prints for the command that
// it gets: squeue, which has ten seconds.
int64_t end_of_batch_job(const GetVariable& getenv,
                         const std::function<std::string(const std::string& command)>& ask);
int64_t end_of_batch_job();

// In the order of the list. Several brackets in a name are every combination. Error when the list
// is malformed or names more than a million hosts.
std::vector<std::string> expand_host_list(std::string_view list);

// "" when a rank runs on each host of the job, or there is no job; else a sentence that names the
// hosts without one, or says what is wrong with the job's list. `hosts`: of the ranks. Names are
// compared up to their first point. `getenv`: reads a variable, null: it is not set.
std::string idle_hosts_note(const std::vector<std::string>& hosts,
                            const std::function<const char*(const char* name)>& getenv);

// For srun --mpi=, by what `srun --mpi=list` prints; "": no plugin connects the ranks.
// `without_pmix`: the MPI of this program speaks to srun without PMIx (PMI2).
std::string srun_plugin(const std::string& listed, bool without_pmix);
// By this machine's srun; nullopt: it has none, or none that answers.
std::optional<std::string> asked_srun_plugin();

}  // namespace fsdp::tools
