// Which ends of a job are followed by another start, and after what pause.
#include "tools/jobs/restarts.h"

#include <csignal>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("restarts: what another start would not change is final") {
  for (const int status : {0, 2, 12, 74, 75, 76, 78}) {
    Restarts restarts({.most = 5});
    const Restarts::Decision end = restarts.after(status, 0, 10);
    CHECK(!end.again);
    CHECK(end.status == status);
    CHECK(end.why == "");
  }
  for (const int status : {1, 134, 137, 139, 143}) {
    CHECK(Restarts({.most = 5}).after(status, 0, 10).again);
  }
}

TEST_CASE("restarts: a parent that was asked to stop starts nothing") {
  Restarts restarts({.most = 5});
  CHECK(restarts.after(75, SIGUSR1, 3).status == 75);
  CHECK(restarts.after(75, SIGTERM, 3).status == 143);  // nobody wants the job to go on
  CHECK(restarts.after(74, SIGTERM, 3).status == 74);
  CHECK(restarts.after(137, SIGTERM, 3).status == 137);
  CHECK(!restarts.after(137, SIGTERM, 3).again);
  // The ranks did not listen yet.
  CHECK(restarts.after(128 + SIGUSR1, SIGTERM, 3).status == 143);
  CHECK(restarts.after(128 + SIGUSR1, SIGUSR1, 3).status == 74);
}

TEST_CASE("restarts: not more than was said, and none without a number") {
  Restarts none({});
  CHECK(none.after(1, 0, 0).status == 1);
  CHECK(none.after(1, 0, 0).why == "");
  Restarts two({.most = 2});
  CHECK(two.after(1, 0, 1).again);
  CHECK(two.after(1, 0, 2).again);
  const Restarts::Decision third = two.after(1, 0, 3);
  CHECK(!third.again);
  CHECK(third.status == 1);
  CHECK(test::contains(third.why, "ended with status 1, after 2 restarts"));
  CHECK(two.count() == 2);
}

TEST_CASE("restarts: pauses grow while there is no progress, which ends them after three") {
  Restarts restarts({.most = 100});
  const auto pause_after = [&](int64_t step) {
    const Restarts::Decision next = restarts.after(137, 0, step);
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

}  // namespace
}  // namespace fsdp::tools
