// A job in Slurm's queue, with answers of scontrol in place of it.
#include "tools/jobs/slurm_queue.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

using Words = std::vector<std::string>;

std::string line(const std::string& state, const std::string& more = "",
                 const std::string& code = "0:0") {
  return "JobId=12 JobName=mine JobState=" + state + " Requeue=1 ExitCode=" + code +
         " TimeLimit=00:02:00 " + more + "\n";
}

TEST_CASE("queue: the number of a job that is submitted") {
  const auto submitted = [](const std::string& text, int status) {
    return submit("a.sbatch", [&](const Words& words) {
      CHECK(words == Words{"sbatch", "--parsable", "a.sbatch"});
      return ShellOutput{text, status};
    });
  };
  CHECK(submitted("12\n", 0) == "12");
  CHECK(submitted("12;cluster\n", 0) == "12");
  CHECK(submitted("sbatch: note: the default account is used\n12\n", 0) == "12");
  CHECK(test::error_of([&] { submitted("sbatch: error: invalid partition\n", 1); }) ==
        "sbatch a.sbatch: sbatch: error: invalid partition");
  CHECK(test::contains(test::error_of([&] { submitted("sh: 1: sbatch: not found", 127); }),
                       "this machine has no sbatch"));
}

TEST_CASE("queue: what scontrol prints") {
  const auto jobs = parse_jobs(
      "JobId=12 ArrayJobId=12 ArrayTaskId=2-3%1 JobState=PENDING Reason=JobArrayTaskLimit "
      "NodeList=(null) Restarts=0 ExitCode=0:0\n"
      "JobId=13 ArrayJobId=12 ArrayTaskId=1 JobName=a JobState=FAILED Reason=NonZeroExitCode "
      "Restarts=2 ExitCode=75:0 "
      "NodeList=n[0-1] StdOut=/tmp/a.log\n"
      "JobId=14 JobState=CANCELLED ExitCode=0:15\n"
      "JobId=15 JobState=RUNNING StdOut=/tmp/two words-15.log Power= \n");
  REQUIRE(jobs.size() == 4);
  CHECK(jobs[3].log == "/tmp/two words-15.log");
  CHECK(jobs[0].id == "12_2-3%1");
  CHECK(jobs[0].nodes.empty());
  CHECK(!jobs[0].has_ended());
  CHECK(jobs[1].id == "12_1");
  CHECK(jobs[1].status == 75);
  CHECK(jobs[1].restarts == 2);
  CHECK(jobs[1].log == "/tmp/a.log");
  CHECK(jobs[1].has_ended());
  CHECK(jobs[2].status == 143);
}

struct Followed {
  std::vector<std::string> said;
  std::string shown;
  int status = -1;
};
Followed follow_answers(const std::vector<ShellOutput>& answers) {
  Followed out;
  size_t next = 0;
  out.status = follow("12", {.say = [&](const std::string& text) { out.said.push_back(text); },
                             .show = [&](const std::string& text) { out.shown += text; },
                             .pause = std::chrono::milliseconds(0),
                             .ask =
                                 [&](const Words& words) {
                                   CHECK(words == Words{"scontrol", "show", "job", "-o", "12"});
                                   return answers.at(next++);
                                 }});
  CHECK(next == answers.size());
  return out;
}

TEST_CASE("queue: a job is followed to its end, also when it is queued again") {
  const test::TempFolder folder;
  const std::string log = "StdOut=" + folder.write("log", "step 1\n").string();
  const Followed job =
      follow_answers({{line("PENDING", "Reason=Resources Restarts=0"), 0},
                      {line("RUNNING", "NodeList=n0 Restarts=0 " + log), 0},
                      {line("RUNNING", "NodeList=n0 Restarts=0 " + log), 0},
                      {line("PENDING", "Reason=BeginTime Restarts=1 " + log), 0},
                      {"slurm_load_jobs error: Unable to contact slurm controller\n", 1},
                      {"slurm_load_jobs error: Unable to contact slurm controller\n", 1},
                      {line("COMPLETED", "NodeList=n0 Restarts=1 " + log), 0}});
  CHECK(job.said == Words{"job 12: PENDING (Resources)", "job 12: RUNNING on n0",
                          "job 12: PENDING (BeginTime), restart 1",
                          "slurm_load_jobs error: Unable to contact slurm controller; asking again",
                          "job 12: COMPLETED, restart 1, status 0"});
  CHECK(job.shown == "step 1\n");
  CHECK(job.status == 0);
}

TEST_CASE("queue: the status is the job's") {
  CHECK(follow_answers({{line("FAILED", "", "78:0"), 0}}).status == 78);
  CHECK(follow_answers({{line("TIMEOUT", "", "0:0"), 0}}).status == 1);
  CHECK(follow_answers({{line("COMPLETED") + line("FAILED", "", "12:0"), 0}}).status == 12);
  const Followed unopened =
      follow_answers({{line("FAILED", "StdOut=/tmp/absent/1.log", "0:53"), 0}});
  CHECK(unopened.said == Words{"job 12: FAILED, status 181; Slurm may not have been able to open "
                               "/tmp/absent/1.log: is its folder there?"});
  CHECK(follow_answers({{line("FAILED", "StdOut=/tmp/1.log", "3:0"), 0}}).said ==
        Words{"job 12: FAILED, status 3; /tmp/1.log"});
  // Of an array, Slurm has forgotten the first when the second ends.
  const std::string second = "JobId=13 ArrayJobId=12 ArrayTaskId=1 ";
  CHECK(follow_answers(
            {{line("FAILED", "ArrayJobId=12 ArrayTaskId=0", "12:0") + second + "JobState=RUNNING\n",
              0},
             {second + "JobState=COMPLETED ExitCode=0:0\n", 0}})
            .status == 12);
  const Followed forgotten =
      follow_answers({{"slurm_load_jobs error: Invalid job id specified\n", 1}});
  CHECK(forgotten.status == 1);
  CHECK(forgotten.said == Words{"job 12: Slurm does not know of it any more"});
}

}  // namespace
}  // namespace fsdp::tools
