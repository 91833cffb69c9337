// The file that sbatch takes: what a job of Slurm asks for, and the shell commands that start its
// ranks, pass the signal before its limit on, and put it back into the queue. Read next:
// slurm_queue.h, which submits it. Not here: the process inside the job that starts the ranks, also
// again (parent.h).
//
// [Note: the end of a job's time] --signal=B:USR1@grace reaches the batch shell alone. The shell
// hands it to `fsdp launch`, which hands it to srun or mpirun, which hand it to the ranks. The run
// saves a checkpoint and ends with status 75; the shell then asks Slurm to queue the job again.
// So it does after a failure, a set number of times, without the node that the failure names.
// Slurm itself queues a job again whose node has failed (--requeue). Either way the same script
// runs once more, and `train --resume auto` goes on.
#pragma once

#include <string>
#include <vector>

#include "tools/jobs/job.h"
#include "tools/jobs/slurm_site.h"
#include "tools/jobs/variations.h"

namespace fsdp::tools {

struct SlurmJob {
  Job job;                 // its launcher: srun or mpirun
  std::string folder;      // in which the job runs, absolute
  std::string name;        // as given
  std::string usual_name;  // where neither a person nor the site gives one
  int nodes = 0;           // 0: Slurm chooses
  int gpus_of_node = 0;    // a rank each; 0: the CPU computes
  int cores_of_rank = 0;   // 0: as the partition says
  std::string time;        // of Slurm: "4:00:00"; "": as the partition says
  int64_t grace = 300;     // seconds before the limit at which the run is told to save
  int64_t restarts = 3;    // inside a job, after a crash
  int64_t requeues = 3;    // of the job, after starts in a row that failed
  std::vector<SbatchOption> options = {};  // others that sbatch knows
  SlurmSite site = {};
  std::vector<Variation> variations = {};  // an array of jobs; empty: one job
  int at_once = 0;                         // of the array; 0: all
};

// Error where options contradict each other, with the place of each.
std::string slurm_script(const SlurmJob& job);
// The first lines of such a file: only what begins so may be replaced by another one.
std::string script_mark();

}  // namespace fsdp::tools
