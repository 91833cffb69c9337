// Slurm's short lists of hosts, and hosts of a job on which no rank runs.
// Requirements: S2.12.
#include "tools/launch/host_list.h"

#include <map>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

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

}  // namespace
}  // namespace fsdp::tools
