// What a failed run leaves of its end, and who is named by the lines of a job.
#include "tools/launch/end_note.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/launch/backend_choice.h"

namespace fsdp::tools {
namespace {

TEST_CASE("end note: rank and host are those that the line begins with") {
  const EndNote gone =
      note_of_line("rank 3 (node7, process 4711) is gone: killed; rank 0 is in", 1);
  CHECK(gone.rank == 3);
  CHECK(gone.host == "node7");
  CHECK(gone.status == 1);
  CHECK(gone.time > 1e9);
  CHECK(note_of_line("ranks 2, 3 (node7): no sign of life for 10 s", 1).host == "node7");
  CHECK(note_of_line("ranks 2, 3 (node7): no sign of life for 10 s", 1).rank == 2);
  CHECK(note_of_line("rank 1 (node8): text.txt: cannot read", 1).host == "node8");
  CHECK(note_of_line("rank 1: text.txt: cannot read", 1).rank == 1);
  CHECK(note_of_line("rank 1: text.txt: cannot read", 1).host == host_name());
  CHECK(note_of_line("step 12: the loss is not finite", 76).rank == -1);
  CHECK(note_of_line("ranks have different options", 78).rank == -1);
}

TEST_CASE("end note: the first one of a start counts, and only where there is a run") {
  const test::TempFolder folder;
  const EndNote note = {.time = 5, .status = 76, .cause = "it diverges", .host = "a", .rank = 2};
  leave_end_note(folder.path(), note);
  leave_end_note(folder / "absent", note);
  CHECK(!read_end_note(folder.path()));
  folder.write("config.yaml", "");
  leave_end_note(folder.path(), note);
  leave_end_note(folder.path(), {.status = 1, .cause = "later"});
  const auto read = read_end_note(folder.path());
  REQUIRE(read);
  CHECK(read->time == 5);
  CHECK(read->status == 76);
  CHECK(read->cause == "it diverges");
  CHECK(read->host == "a");
  CHECK(read->rank == 2);
  folder.write("end.json", "{\"time\":");
  CHECK(!read_end_note(folder.path()));
}

}  // namespace
}  // namespace fsdp::tools
