// The file that a batch system takes. For Slurm: what a job asks for, what a cluster wants of every
// job, and the shell commands (slurm_job.sh.in) that start its ranks, pass the signal before its
// limit on, and put it back into the queue. For PBS and LSF a file to begin with: it starts the
// ranks by `fsdp launch mpirun` on the hosts that the batch system gives; neither system was there
// to try it. Read next: slurm_queue.h, which submits a job. Not here: the process inside the job
// that starts the ranks, also again (parent.h).
//
// [Note: the end of a job's time] --signal=B:USR1@grace reaches the batch shell alone. The shell
// hands it to `fsdp launch`, which hands it to srun or mpirun, which hand it to the ranks. The run
// saves a checkpoint and ends with status 75; the shell then asks Slurm to queue the job again.
// So it does after a failure, a set number of times, without the node that the failure names.
// Slurm itself queues a job again whose node has failed (--requeue). Either way the same script
// runs once more, and `train --resume auto` continues the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/jobs/job.h"
#include "tools/jobs/variations.h"

namespace fsdp::tools {

// "--time=1:00:00"; the value may be missing.
struct SbatchOption {
  std::string name;   // "--time"
  std::string value;  // "": a switch
  std::string place;  // for messages: "site.sh:3", "--sbatch"

  std::string text() const;  // with quotes where the value has a blank and none
};
// "--time=1:00:00", "--time 1:00:00", "-t 1:00:00": names are the long ones. Error, with the place,
// for what is no option.
SbatchOption parse_sbatch(const std::string& text, const std::string& place);

// "30" (minutes), "30:00", "1:00:00", "2-12", "2-12:30"; nullopt: no limit, "0" or "UNLIMITED".
// Error for another form.
std::optional<int64_t> slurm_seconds(const std::string& time, const std::string& place);

struct SlurmSite {
  std::vector<SbatchOption> options;
  std::vector<std::string> lines;  // of the shell, before the ranks are started
};
// Error that names file and line; SystemError where the file cannot be read.
SlurmSite read_site(const std::filesystem::path& file);

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
// The shell of such a file, with places such as @LAUNCH@: slurm_job.sh.in.
std::string_view slurm_job_text();

enum class BatchSystem : uint8_t { kPbs, kLsf };

struct BatchFile {
  BatchSystem system = BatchSystem::kPbs;
  std::string file;     // its own absolute path
  std::string folder;   // in which the job runs, absolute
  std::string program;  // fsdp
  int ranks = 1;
  int nodes = 1;
  std::string time;                    // as Slurm writes it; "": none
  std::vector<std::string> arguments;  // "train", ...
};
// Error where ranks do not fit the nodes, or the time cannot be read.
std::string batch_file(const BatchFile& job);
// Its first lines: only what begins so may be replaced by another one.
std::string batch_file_mark(BatchSystem system);

}  // namespace fsdp::tools
