// The job of Slurm that this process is part of, by the variables of its environment (man sbatch,
// "output environment variables"). Not here: its hosts on which no rank runs (host_list.h), writing
// such a job (tools/jobs).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

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

}  // namespace fsdp::tools
