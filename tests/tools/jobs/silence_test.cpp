// When a job counts as one that hangs, by a clock that the test has.
#include "tools/jobs/silence.h"

#include <algorithm>
#include <csignal>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

using std::chrono::seconds;

// Seconds until the job is to be ended, at most 1000; a look each second.
template <typename Look>
int seconds_until_ended(pid_t job, int limit, Look&& look) {
  Silence::Clock::time_point now{};
  Silence silence(job, seconds(limit), now);
  for (int second = 1; second < 1000; ++second) {
    now += seconds(1);
    if (!silence.after(look(second), now).empty()) return second;
  }
  return 1000;
}

TEST_CASE("silence: a file that nothing touches any more, once the job had touched it") {
  const auto touched_until = [](int end) {
    return [end](int second) { return RunWatch::Look{.sign_of_life = 5 + std::min(second, end)}; };
  };
  CHECK(seconds_until_ended(::getpid(), 100, touched_until(50)) == 151);
  CHECK(seconds_until_ended(::getpid(), 5, touched_until(50)) == 111);  // at least a minute
  // A file of an earlier start, and none: the job is in its set-up.
  CHECK(seconds_until_ended(::getpid(), 5, touched_until(0)) == 1000);
  CHECK(seconds_until_ended(::getpid(), 5, [](int) { return RunWatch::Look(); }) == 1000);
  // One that somebody has removed says nothing of the job, until it is there again.
  const auto removed_until = [](int back) {
    return [back](int second) {
      return RunWatch::Look{.sign_of_life = second < 50 ? second : second < back ? 0 : 7};
    };
  };
  CHECK(seconds_until_ended(::getpid(), 5, removed_until(1000)) == 1000);
  CHECK(seconds_until_ended(::getpid(), 5, removed_until(500)) == 561);
  // A storage that does not answer says nothing of the job.
  CHECK(seconds_until_ended(::getpid(), 5, [](int second) {
          return RunWatch::Look{.problem = second > 50 ? "away" : "",
                                .sign_of_life = std::min(second, 50)};
        }) == 1000);
}

TEST_CASE("silence: time in which the parent did not run does not count") {
  Silence::Clock::time_point now{};
  Silence silence(::getpid(), seconds(100), now);
  for (int64_t sign : {1, 2, 2}) {
    CHECK(silence.after({.sign_of_life = sign}, now += seconds(1)) == "");
  }
  CHECK(silence.after({.sign_of_life = 2}, now += std::chrono::hours(9)) == "");
}

TEST_CASE("silence: a process that is stopped, and who is below it") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int state = 0;
  REQUIRE(::waitpid(child, &state, WUNTRACED) == child);
  REQUIRE(WIFSTOPPED(state));
  CHECK(seconds_until_ended(child, 30, [](int) { return RunWatch::Look{.problem = "away"}; }) ==
        31);
  Silence silence(child, seconds(0));
  CHECK(test::contains(silence.after({}, Silence::Clock::now() + seconds(1)), "is stopped"));
  const auto below = processes_below(::getpid());
  CHECK(std::count(below.begin(), below.end(), child) == 1);
  CHECK(std::count(below.begin(), below.end(), ::getpid()) == 0);
  ::kill(child, SIGCONT);
  ::waitpid(child, &state, 0);
}

}  // namespace
}  // namespace fsdp::tools
