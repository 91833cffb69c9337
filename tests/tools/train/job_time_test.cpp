// When a run has to stop because the time of its job is nearly over.
#include "tools/train/job_time.h"

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

TEST_CASE("job time: two saves, the longest step and the grace are kept") {
  JobTime time(1000, 5, 10);
  CHECK(time.needed_s() == 25);
  time.step_took(3);
  time.step_took(1);
  CHECK(time.needed_s() == 28);
  CHECK(!time.is_over(972));
  CHECK(time.is_over(972.5));
  CHECK(time.left_s(972.5) == 27.5);
  time.save_took(2);  // shorter than the guess
  CHECK(time.needed_s() == 12);
  CHECK(!time.is_over(987));
}

TEST_CASE("job time: without an end it is never over") { CHECK(!JobTime(0, 5, 10).is_over(1e10)); }

}  // namespace
}  // namespace fsdp::tools
