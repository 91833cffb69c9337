// What Slurm's variables, host lists and srun say.
#include "tools/launch/batch_job.h"

#include <cstdlib>
#include <map>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

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

using Names = std::vector<std::string>;

std::string note(const Names& hosts, const std::map<std::string, std::string>& variables) {
  return idle_hosts_note(hosts, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

// As `scontrol show hostnames` writes them.
TEST_CASE("host list: ranges, single numbers, several names and brackets") {
  CHECK(expand_host_list("a[01-03,07]") == Names{"a01", "a02", "a03", "a07"});
  CHECK(expand_host_list("node1") == Names{"node1"});
  CHECK(expand_host_list("a[8-11],login-2.x,b3") ==
        Names{"a8", "a9", "a10", "a11", "login-2.x", "b3"});
  CHECK(expand_host_list("gpu[099-101]-ib") == Names{"gpu099-ib", "gpu100-ib", "gpu101-ib"});
  CHECK(expand_host_list("r[1-2]n[01,03]") == Names{"r1n01", "r1n03", "r2n01", "r2n03"});
}

TEST_CASE("host list: mistakes say what was expected") {
  const auto error = [](const char* list) {
    return test::error_of([&] { expand_host_list(list); });
  };
  CHECK(error("a[01-03") == "host list \"a[01-03\": expected a ] behind each [");
  CHECK(error("a01]") == "host list \"a01]\": expected a ] behind each [");
  CHECK(error("a[[1]]") == "host list \"a[[1]]\": expected a ] behind each [");
  CHECK(error("a[3-1]") == "host list \"a[3-1]\": expected a range that rises, got \"3-1\"");
  CHECK(error("a[x]") == "host list \"a[x]\": expected numbers in brackets, got \"x\"");
  CHECK(error("a[1-]") == "host list \"a[1-]\": expected numbers in brackets, got \"\"");
  CHECK(error("a,,b") == "host list \"a,,b\": expected a name before and behind each comma");
  CHECK(error("") == "host list \"\": expected a name before and behind each comma");
  CHECK(error("a[]") == "host list \"a[]\": expected a name before and behind each comma");
  CHECK(error("a[0-9999999]") == "host list \"a[0-9999999]\": expected at most a million hosts");
}

TEST_CASE("host list: hosts of the job without a rank are named") {
  const Names ranks = {"a01.cluster", "a01.cluster", "a03"};
  CHECK(note(ranks, {}).empty());
  CHECK(note(ranks, {{"SLURM_JOB_NODELIST", "a[01,03]"}}).empty());
  CHECK(note(ranks, {{"SLURM_JOB_NODELIST", "a[01-04]"}}) ==
        "SLURM_JOB_NODELIST has 4 hosts, no rank runs on a02, a04");
  // A step may be of fewer hosts than its job.
  CHECK(note(ranks, {{"SLURM_JOB_NODELIST", "a[01-04]"}, {"SLURM_STEP_NODELIST", "a[01,03]"}})
            .empty());
  CHECK(note(ranks, {{"SLURM_JOB_NODELIST", "b[1-10]"}}) ==
        "SLURM_JOB_NODELIST has 10 hosts, no rank runs on b1, b2, b3, b4, b5, b6, b7, b8 and 2 "
        "more");
  CHECK(note(ranks, {{"SLURM_JOB_NODELIST", "b["}}) ==
        "SLURM_JOB_NODELIST: host list \"b[\": expected a ] behind each [");
}

TEST_CASE("srun: which plugin of srun connects ranks") {
  CHECK(srun_plugin("MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin "
                    "versions available: pmix_v4\n",
                    true) == "pmix");
  CHECK(srun_plugin("srun: MPI types are...\nsrun: pmi2\nsrun: none\nsrun: pmix_v3\n", true) ==
        "pmix_v3");
  CHECK(srun_plugin("\tpmi2\n\tnone\n", true) == "pmi2");
  CHECK(srun_plugin("\tpmi2\n\tnone\n", false).empty());
  CHECK(srun_plugin("", true).empty());
  CHECK(srun_plugin("sh: 1: /opt/mpi_pmix/srun: not found\n", false).empty());
}

}  // namespace
}  // namespace fsdp::tools
