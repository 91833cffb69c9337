// Room for checkpoints: how many must fit, and what is said where they do not.
#include "tools/checkpoint/checkpoint_room.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE(
    "room for checkpoints: one more than is kept, because a new one comes before an old one goes") {
  config::CheckpointSection section;
  section.every = config::Interval{.steps = 10};
  section.keep = 3;
  CHECK(checkpoints_to_come(section, 1000, 0) == 4);
  CHECK(checkpoints_to_come(section, 1000, 3) == 1);
  CHECK(checkpoints_to_come(section, 1000, 9) == 1);  // keep was larger
  CHECK(checkpoints_to_come(section, 11, 0) == 2);    // no more are written
  CHECK(checkpoints_to_come(section, 0, 0) == 1);
  section.keep = 0;
  CHECK(checkpoints_to_come(section, 1000, 0) == 2);
  section.every.reset();  // by time: how many is not known
  section.keep = 1;
  CHECK(checkpoints_to_come(section, 1, 0) == 2);
}

TEST_CASE("room for checkpoints: what is free and what is needed") {
  const test::TempFolder folder;
  CHECK(missing_room(folder / "not" / "there", 1, 2, 3) == "");
  const uint64_t much = uint64_t{1} << 50;
  CHECK(test::contains(missing_room(folder / "not" / "there", much, 3, 0),
                       "are free; 3 checkpoints of 1048576.00 GiB each need 3145728.00 GiB"));
  CHECK(test::contains(missing_room(folder.path(), 8, 1, 2 * much),
                       "1 checkpoint of 8 bytes each and the trained model need 2097152.00 GiB"));
}

}  // namespace
}  // namespace fsdp::tools
