// A job in Slurm's queue: submitting it, and following it to its end. Not here: the file that is
// submitted (batch_file.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tools/launch/shell.h"

namespace fsdp::tools {

using Ask = std::function<ShellOutput(const std::vector<std::string>& words)>;

// The number that sbatch gives the job. Error with what sbatch printed.
std::string submit(const std::filesystem::path& script, const Ask& ask = output_of);

// One job, or one of an array, as `scontrol show job -o` prints it.
struct QueuedJob {
  std::string id;  // "12", "12_3"
  std::string state, reason, nodes;
  int restarts = 0;
  int status = 0;  // of its script; 128 + a signal
  std::filesystem::path log;

  bool has_ended() const;
};
std::vector<QueuedJob> parse_jobs(const std::string& text);

struct Following {
  std::function<void(const std::string& line)> say;
  std::function<void(const std::string& text)> show;  // what the job prints
  std::chrono::milliseconds pause{2000};
  Ask ask = output_of;
};
// Until the job, or each of the array, has ended: says what changes, and shows the log of a job
// that is no array. Returns its status, of an array the largest; 1 where a job has ended without
// one, and where Slurm no longer knows of the job.
int follow(const std::string& id, const Following& following);

}  // namespace fsdp::tools
