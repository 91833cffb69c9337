// Which ends of a job are followed by another start, and after what pause.
#include "tools/jobs/restarts.h"

#include <csignal>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

using std::chrono::seconds;

StartEnd start_end(int status, int asked = 0, int64_t durable_step = 0) {
  return {.status = status, .asked = asked, .durable_step = durable_step, .stepped = true};
}

TEST_CASE("restarts: what another start would not change is final") {
  for (const int status : {0, 2, 12, 74, 75, 76, 78}) {
    Restarts restarts({.most = 5});
    const Restarts::Decision end = restarts.after(start_end(status, 0, 10));
    CHECK(!end.again);
    CHECK(end.status == status);
    CHECK(end.why == "");
  }
  for (const int status : {1, 134, 137, 139, 143}) {
    CHECK(Restarts({.most = 5}).after(start_end(status, 0, 10)).again);
  }
}

TEST_CASE("restarts: a parent that was asked to stop starts nothing") {
  Restarts restarts({.most = 5});
  CHECK(restarts.after(start_end(75, SIGUSR1, 3)).status == 75);
  CHECK(restarts.after(start_end(75, SIGTERM, 3)).status == 143);  // nobody wants the job to go on
  CHECK(restarts.after(start_end(74, SIGTERM, 3)).status == 74);
  CHECK(restarts.after(start_end(137, SIGTERM, 3)).status == 137);
  CHECK(!restarts.after(start_end(137, SIGTERM, 3)).again);
  // The ranks did not listen yet.
  CHECK(restarts.after(start_end(128 + SIGUSR1, SIGTERM, 3)).status == 143);
  CHECK(restarts.after(start_end(128 + SIGUSR1, SIGUSR1, 3)).status == 74);
}

TEST_CASE("restarts: not more than was said, and none without a number") {
  Restarts none({});
  CHECK(none.after(start_end(1, 0, 0)).status == 1);
  CHECK(none.after(start_end(1, 0, 0)).why == "");
  Restarts two({.most = 2});
  CHECK(two.after(start_end(1, 0, 1)).again);
  CHECK(two.after(start_end(1, 0, 2)).again);
  const Restarts::Decision third = two.after(start_end(1, 0, 3));
  CHECK(!third.again);
  CHECK(third.status == 1);
  CHECK(test::contains(third.why, "ended with status 1, after 2 restarts"));
  CHECK(two.count() == 2);
}

TEST_CASE("restarts: pauses grow while there is no progress, which ends them after three") {
  Restarts restarts({.most = 100});
  const auto pause_after = [&](int64_t step) {
    const Restarts::Decision next = restarts.after(start_end(137, 0, step));
    return next.again ? next.pause.count() : -next.status;
  };
  CHECK(pause_after(0) == 1);
  CHECK(pause_after(0) == 8);
  CHECK(pause_after(0) == 60);
  CHECK(pause_after(10) == 1);  // a checkpoint
  CHECK(pause_after(10) == 8);
  CHECK(pause_after(10) == 60);
  CHECK(pause_after(10) == -76);
}

TEST_CASE(
    "restarts: checkpoints of a run that has begun anew are progress, below the old ones too") {
  Restarts restarts({.most = 100});
  for (const int64_t step : {2000, 20, 40, 60, 80, 100}) {
    const Restarts::Decision next = restarts.after(start_end(139, 0, step));
    CHECK(next.again);
    CHECK(next.pause.count() == 1);
    CHECK(test::contains(next.why, fmt::format("the last checkpoint is of step {};", step)));
  }
}

// With the seconds of a clock that the test has: see [Note: what counts].
struct Clock {
  Restarts restarts;
  seconds now{1000};

  Restarts::Decision after(int status, bool stepped, int64_t durable_step,
                           const std::string& problem = "") {
    return restarts.after({.status = status,
                           .durable_step = durable_step,
                           .stepped = stepped,
                           .problem = problem,
                           .at = now});
  }
};

TEST_CASE("restarts: a storage that is away is waited for, said each minute, up to the patience") {
  Clock clock{.restarts = Restarts({.most = 1, .patience = seconds(300)})};
  // Where the storage is the reason, no start is used up, whether it had come to a step or not.
  CHECK(clock.after(1, true, 40, "run is not there").again);
  int said = 0;
  Restarts::Decision wait = {.again = true};
  while ((wait = clock.restarts.wait("run is not there", clock.now)).again) {
    said += wait.why.empty() ? 0 : 1;
    clock.now += seconds(1);
  }
  CHECK(said == 5);
  CHECK(clock.now == seconds(1300));
  CHECK(wait.status == 76);
  CHECK(wait.why == "run is not there, for 5 min (--patience): given up");
}

TEST_CASE("restarts: an outage that ends before the patience does leaves nothing behind") {
  Clock clock{.restarts = Restarts({.most = 2, .patience = seconds(300)})};
  for (int outage = 0; outage < 5; ++outage) {
    CHECK(clock.after(1, true, 40 + outage, "not there").again);
    CHECK(clock.restarts.wait("not there", clock.now).why ==
          "not there: waiting, for up to 5 min more (--patience)");
    clock.now += seconds(299);
    CHECK(clock.restarts.wait("not there", clock.now).again);
  }
  CHECK(clock.restarts.count() == 5);
}

TEST_CASE("restarts: a run that has worked is started again until the patience is over") {
  Clock clock{.restarts = Restarts({.most = 1, .patience = seconds(600)})};
  CHECK(clock.after(1, true, 40).again);
  std::vector<int64_t> pauses;
  Restarts::Decision next;
  while ((next = clock.after(1, false, 40)).again) {
    pauses.push_back(next.pause.count());
    clock.now += next.pause + seconds(5);  // its set-up
  }
  CHECK(next.status == 76);
  REQUIRE(pauses.size() == 11);
  CHECK(std::vector(pauses.begin(), pauses.begin() + 4) == std::vector<int64_t>{1, 8, 60, 60});
  CHECK(test::contains(next.why, "could not go on for 10 min (--patience): given up"));
  // A step ends the wait.
  Clock other{.restarts = Restarts({.most = 9, .patience = seconds(100)})};
  CHECK(other.after(1, true, 40).again);
  CHECK(other.after(1, false, 40).again);
  other.now += seconds(99);
  CHECK(other.after(1, true, 40).again);
  other.now += seconds(99);
  CHECK(other.after(1, false, 40).again);
}

TEST_CASE("restarts: what never works, and what crashes, is given up after three starts") {
  const auto starts = [](int status, int64_t durable_step, bool several_hosts) {
    Clock clock{.restarts = Restarts({.most = 99, .several_hosts = several_hosts})};
    int count = 1;
    for (; count < 20; ++count) {
      const Restarts::Decision next = clock.after(status, false, durable_step);
      if (!next.again) return next.status == 76 ? count : -1;
      clock.now += next.pause;
    }
    return count;
  };
  CHECK(starts(1, 0, false) == 4);    // never came to a step
  CHECK(starts(139, 7, false) == 4);  // crashes, though the run has worked
  CHECK(starts(1, 7, false) == 20);   // it has worked: by time
  CHECK(starts(1, 0, true) == 20);    // a host may be what does not answer
}

}  // namespace
}  // namespace fsdp::tools
