// Contract: tools/launch/batch_job.h.
#include "tools/launch/batch_job.h"

#include <cstdlib>
#include <ctime>

#include "tools/launch/shell.h"

namespace fsdp::tools {
namespace {

std::string text_of(const char* variable) { return variable ? variable : ""; }

// "2026-11-26T07:50:08", in this machine's time zone; 0: none, such as "N/A" and "UNLIMITED".
int64_t unix_time_of(const std::string& text) {
  std::tm local = {};
  if (!::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &local)) return 0;
  local.tm_isdst = -1;
  return std::max<int64_t>(0, ::mktime(&local));
}

std::string answer_to(const std::string& command) {
  return output_within(std::chrono::seconds(10), {"sh", "-c", command}).text;
}

const char* environment(const char* name) { return std::getenv(name); }

}  // namespace

std::optional<BatchJob> batch_job(const GetVariable& getenv) {
  const char* const id = getenv("SLURM_JOB_ID");
  if (!id) return {};
  return BatchJob{.id = id,
                  .array = text_of(getenv("SLURM_ARRAY_JOB_ID")),
                  .task = text_of(getenv("SLURM_ARRAY_TASK_ID")),
                  .nodes = text_of(getenv("SLURM_JOB_NODELIST")),
                  .restarts = std::atoi(text_of(getenv("SLURM_RESTART_COUNT")).c_str())};
}

std::optional<BatchJob> batch_job() { return batch_job(environment); }

int64_t end_of_batch_job(const GetVariable& getenv,
                         const std::function<std::string(const std::string& command)>& ask) {
  const int64_t end = std::atoll(text_of(getenv("SLURM_JOB_END_TIME")).c_str());
  if (end > 0) return end;
  const std::string id = text_of(getenv("SLURM_JOB_ID"));
  if (id.empty() || id.find_first_not_of("0123456789") != std::string::npos) return 0;
  return unix_time_of(ask("env SLURM_TIME_FORMAT=standard squeue --noheader --jobs=" + id +
                          " --format=%e 2>/dev/null"));
}

int64_t end_of_batch_job() { return end_of_batch_job(environment, answer_to); }

}  // namespace fsdp::tools
