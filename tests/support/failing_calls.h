// A small run of which one call of the file system fails once: it ends well all the same, or with 1
// and the next start ends well. Not here: which calls (tests/tools/run/failing_calls_test.cpp).
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/io_faults.h"
#include "tests/support/tiny_run.h"
#include "tools/launch/launch.h"

namespace fsdp::test {

struct Start {
  int status = 0;
  std::string error;
};

// As `fsdp train` would end; `restarts`: how often the job was started before.
inline Start start(tools::ResumeRequest request, int restarts) {
  request.before.by_parent = restarts;
  const tools::TrainingRunOptions options = {
      .local_ranks = 2, .resume = "auto", .say = [](const auto&) {}};
  Start end;
  std::mutex mutex;
  try {
    const tools::ResumePlan plan = tools::before_first_step(
        [&] {
          try {
            return tools::plan_resume(request);
          } catch (const Error& error) {
            throw tools::AgreedError(error.what(), tools::status::kFailed, cause_of(error));
          }
        },
        restarts > 0);
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      tools::RankContext rank{.world = world, .local_ranks = 2, .before = request.before};
      try {
        tools::run_training(options, request, plan, rank);
      } catch (const tools::AgreedError& error) {
        const std::lock_guard lock(mutex);
        end = {error.status(), error.what()};
      }
    });
  } catch (const tools::AgreedError& error) {
    end = {error.status(), error.what()};
  } catch (const std::exception& error) {
    end = {tools::status::kFailed, error.what()};
  }
  return end;
}

inline std::string hash_in(const std::filesystem::path& run) {
  return read_json_file(run / "metrics.json").at("weights_hash").text();
}

// A run that begins, or one that goes on from its checkpoint, in a folder of its own.
class SmallJob {
 public:
  explicit SmallJob(bool goes_on) : goes_on_(goes_on) {
    request_ = {.from = "auto", .overrides = tiny_run(folder_, run())};
    request_.overrides.insert(
        request_.overrides.end(),
        {"checkpoint.every=2", "checkpoint.keep=1", "train.schedule.total=4", "runtime.monitor_s=0",
         "runtime.io_retry_s=0", "runtime.io_retries=1"});
    if (!goes_on) return;
    CHECK(start(until(2), 0).status == 0);
    std::filesystem::remove(run() / "metrics.json");  // as if it had been killed
    std::filesystem::remove_all(run() / "model");
  }
  SmallJob(const SmallJob&) = delete;

  std::filesystem::path run() const { return folder_ / "run"; }
  const std::filesystem::path& folder() const { return folder_.path(); }
  tools::ResumeRequest until(int steps) const {
    tools::ResumeRequest request = request_;
    request.overrides.push_back("train.steps=" + std::to_string(steps));
    return request;
  }
  Start begin(int restarts) const { return start(until(4), goes_on_ ? 1 : restarts); }

 private:
  bool goes_on_;
  TempFolder folder_;
  tools::ResumeRequest request_;
};

// Returns whether the call was made.
inline bool fail_call(bool goes_on, const IoFaultPlan& plan, const std::string& expected) {
  const SmallJob job(goes_on);
  Start first;
  bool struck = false;
  std::string call;
  {
    const IoFaults faults(job.folder(), plan);
    first = job.begin(0);
    struck = faults.failed() > 0;
    call = faults.last_failed();
  }
  CAPTURE(goes_on);
  CAPTURE(plan.at);
  CAPTURE(plan.error);
  CAPTURE(call);
  CAPTURE(first.error);
  const bool may_pass = plan.fault == IoFault::kShort || is_transient(plan.error);
  CHECK((first.status == 0 || (!may_pass && first.status == tools::status::kFailed)));
  if (first.status != 0) {
    const Start next = job.begin(1);
    CAPTURE(next.error);
    CHECK(next.status == 0);
  }
  CHECK(hash_in(job.run()) == expected);
  return struck;
}

inline std::string hash_without_faults() {
  const SmallJob job(false);
  CHECK(job.begin(0).status == 0);
  return hash_in(job.run());
}

}  // namespace fsdp::test
