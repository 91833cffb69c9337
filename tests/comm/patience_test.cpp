// A wait that is over, and one in which the process was stopped.
#include "comm/patience.h"

#include <doctest/doctest.h>

using namespace fsdp::comm;
using std::chrono::seconds;

TEST_CASE("patience: over after the limit, looked at every second") {
  auto now = Patience::Clock::time_point(seconds(100));
  Patience patience(seconds(5), now);
  CHECK(patience.until_look() == seconds(1));
  for (int i = 0; i < 4; ++i) CHECK(!patience.over(now += seconds(1)));
  CHECK(patience.over(now += seconds(1)));
}

TEST_CASE("patience: a stop of an hour counts as two looks") {
  auto now = Patience::Clock::time_point(seconds(100));
  Patience patience(seconds(5), now);
  CHECK(!patience.over(now += seconds(3600)));
  CHECK(!patience.over(now += seconds(1)));
  CHECK(!patience.over(now += seconds(1)));
  CHECK(patience.over(now += seconds(1)));
}

TEST_CASE("patience: a limit below a second") {
  auto now = Patience::Clock::time_point(seconds(100));
  Patience patience(std::chrono::milliseconds(100), now);
  CHECK(patience.until_look() == std::chrono::milliseconds(100));
  CHECK(!patience.over(now += std::chrono::milliseconds(99)));
  CHECK(patience.over(now += std::chrono::milliseconds(1)));
}
