// A line for each interruption, whose sums stay when old lines go.
#include "tools/report/failure_log.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

Failure failure(int64_t restart) {
  return {.end = {.time = 1e9, .status = 137, .cause = "gone", .host = "node7", .rank = 1},
          .restart = restart,
          .step = 12,
          .steps_lost = 2,
          .lost_s = 1.5,
          .detection_s = 0.5};
}

double sum(const test::TempFolder& folder, const char* key) {
  double all = 0;
  for (const Json& line : read_failures(folder.path())) all += line.value(key, 0.0);
  return all;
}

TEST_CASE("failure log: what happened, and the rest of its cost when the run does steps again") {
  const test::TempFolder folder;
  CHECK(read_failures(folder.path()).empty());
  append_failure(folder.path(), failure(1));
  complete_failure(folder.path(), 4, 3);
  append_failure(folder.path(), {.end = {.time = 1e9 + 60, .cause = "killed"}});
  const auto lines = read_failures(folder.path());
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].dump() ==
        R"({"time":"2001-09-09 01:46:40 UTC","host":"node7","rank":1,"cause":"gone","status":137,)"
        R"("restart":1,"step":12,"steps_lost":2,"lost_s":1.5,"detection_s":0.5,"pause_s":4.0,)"
        R"("restart_s":3.0})");
  for (const char* unknown : {"host", "rank", "status"}) CHECK(lines[1].at(unknown).is_null());
}

TEST_CASE("failure log: it does not grow for ever, and its sums stay") {
  const test::TempFolder folder;
  for (int64_t i = 1; i <= 35; ++i) append_failure(folder.path(), failure(i), 10);
  const auto lines = read_failures(folder.path());
  CHECK(lines.size() <= 10);
  CHECK(sum(folder, "lost_s") == 35 * 1.5);
  CHECK(sum(folder, "steps_lost") == 35 * 2);
  double failures = 0;
  for (const Json& line : lines) failures += line.value("failures", 1.0);
  CHECK(failures == 35);
  CHECK(lines.back().at("restart") == 35);
}

TEST_CASE("failure log: a line that was cut is left out, a folder that is not there is no error") {
  const test::TempFolder folder;
  folder.write("failures.jsonl", "{\"cause\":\"a\"}\n{\"cau");
  append_failure(folder.path(), failure(2));
  CHECK(read_failures(folder.path()).size() == 2);
  append_failure(folder / "absent", failure(2));
  complete_failure(folder / "absent", 1, 1);
}

}  // namespace
}  // namespace fsdp::tools
