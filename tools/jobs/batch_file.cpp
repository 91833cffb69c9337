// The options: man qsub of PBS Professional and OpenPBS, man bsub of LSF.
#include "tools/jobs/batch_file.h"

#include <fmt/format.h>

#include "core/error.h"
#include "tools/jobs/slurm_site.h"
#include "tools/launch/shell.h"

namespace fsdp::tools {
namespace {

struct Form {
  const char* name;
  const char* submit;
  const char* hosts;  // a file with a line for each rank
};
Form form_of(BatchSystem system) {
  if (system == BatchSystem::kPbs) return {"pbs", "qsub", "$PBS_NODEFILE"};
  return {"lsf", "bsub <", "$LSB_DJOB_HOSTFILE"};
}

std::string header(const BatchFile& job, int64_t seconds) {
  const int of_node = job.ranks / job.nodes;
  if (job.system == BatchSystem::kPbs) {
    const std::string limit = fmt::format("#PBS -l walltime={}:{:02}:{:02}\n", seconds / 3600,
                                          seconds / 60 % 60, seconds % 60);
    return fmt::format("#PBS -l select={}:ncpus={}:mpiprocs={}\n{}#PBS -j oe\n", job.nodes, of_node,
                       of_node, seconds > 0 ? limit : "");
  }
  const int64_t minutes = (seconds + 59) / 60;
  // LSF itself queues a job again that ends with this status.
  return fmt::format(
      "#BSUB -n {}\n#BSUB -R \"span[ptile={}]\"\n{}#BSUB -Q \"75\"\n", job.ranks, of_node,
      seconds > 0 ? fmt::format("#BSUB -W {}:{:02}\n", minutes / 60, minutes % 60) : "");
}

}  // namespace

std::string batch_file_mark(BatchSystem system) {
  const Form form = form_of(system);
  return fmt::format("#!/bin/bash\n# A job file, written by fsdp launch {}.", form.name);
}

std::string batch_file(const BatchFile& job) {
  const Form form = form_of(job.system);
  FSDP_CHECK(job.nodes > 0 && job.ranks % job.nodes == 0,
             "-n {}: no multiple of --nodes {}: the nodes would have different numbers of ranks",
             job.ranks, job.nodes);
  const std::string place = fmt::format("launch {}", form.name);
  const int64_t seconds = job.time.empty() ? 0 : slurm_seconds(job.time, place).value_or(0);
  std::string end;
  if (seconds > 0) end = fmt::format(" --set runtime.end_time=$((begun + {}))", seconds);
  std::string text = fmt::format(
      "{} Submit it: {} {}\n"
      "# Add what the cluster wants: a queue, an account, GPUs, module load ...\n{}\n"
      "begun=$(date +%s)\ncd {} || exit 1\n"
      "{} launch mpirun --hosts \"@{}\" -n {} --restart 3 -- {}{}\nstatus=$?\n",
      batch_file_mark(job.system), form.submit, shell_text({job.file}), header(job, seconds),
      shell_text({job.folder}), shell_text({job.program}), form.hosts, job.ranks,
      shell_text(job.arguments), end);
  if (job.system == BatchSystem::kPbs) {
    text +=
        "# 75: the checkpoint is on the disk, and the run has more to do.\n[ $status != 75 ] || "
        "qsub " +
        shell_text({job.file}) + "\n";
  }
  return text + "exit $status\n";
}

}  // namespace fsdp::tools
