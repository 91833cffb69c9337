// The job of Slurm that a process is part of.
#include "tools/launch/batch_job.h"

#include <cstdlib>
#include <map>

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

GetVariable variables(const std::map<std::string, std::string>& values) {
  return [values](const char* name) {
    const auto at = values.find(name);
    return at == values.end() ? nullptr : at->second.c_str();
  };
}

TEST_CASE("batch job: by its variables") {
  CHECK(!batch_job(variables({})));
  const auto job = batch_job(variables({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[0-1]"}}));
  REQUIRE(job);
  CHECK(job->id == "7");
  CHECK(job->nodes == "n[0-1]");
  CHECK(job->task.empty());
  CHECK(job->restarts == 0);
  const auto task = batch_job(variables({{"SLURM_JOB_ID", "9"},
                                         {"SLURM_ARRAY_JOB_ID", "8"},
                                         {"SLURM_ARRAY_TASK_ID", "3"},
                                         {"SLURM_RESTART_COUNT", "2"}}));
  CHECK(task->array == "8");
  CHECK(task->task == "3");
  CHECK(task->restarts == 2);
}

TEST_CASE("batch job: when its time is over") {
  std::string asked;
  const auto end = [&](const std::map<std::string, std::string>& values,
                       const std::string& answer) {
    asked.clear();
    return end_of_batch_job(variables(values), [&](const std::string& command) {
      asked = command;
      return answer;
    });
  };
  CHECK(end({}, "") == 0);
  CHECK(end({{"SLURM_JOB_END_TIME", "1795680000"}, {"SLURM_JOB_ID", "7"}}, "") == 1795680000);
  CHECK(asked.empty());
  CHECK(end({{"SLURM_JOB_END_TIME", "soon"}, {"SLURM_JOB_ID", "7"}}, "") == 0);
  CHECK(!asked.empty());
  ::setenv("TZ", "UTC", 1);
  CHECK(end({{"SLURM_JOB_ID", "7"}}, "2026-11-26T08:00:00\n") == 1795680000);
  ::unsetenv("TZ");
  CHECK(asked ==
        "env SLURM_TIME_FORMAT=standard squeue --noheader --jobs=7 --format=%e 2>/dev/null");
  for (const char* none : {"N/A\n", "UNLIMITED\n", ""})
    CHECK(end({{"SLURM_JOB_ID", "7"}}, none) == 0);
  CHECK(end({{"SLURM_JOB_ID", "7; rm x"}}, "") == 0);
  CHECK(asked.empty());
}

}  // namespace
}  // namespace fsdp::tools
