// What a run directory says about its run, also where its files were cut.
#include "tools/checkpoint/run_record.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("run record: who the run is, where it came from, how far it is, how it ended") {
  const test::TempFolder folder;
  CHECK(read_run_record(folder.path()).id == "");
  folder.write("run_args.json",
               R"({"run": "a1", "working_directory": "/w",)"
               R"( "resumed_from": {"step": 7, "path": "/x/step-7", "run": "b2"}})");
  note_last_checkpoint(folder.path(), {9, "/y/step-9", "a1"});
  folder.write("metrics.json", R"({"steps": 9, "epochs": 0.5, "interrupted": true,)"
                               R"( "ended": {"status": 76, "reason": "the loss is nan"}})");
  const RunRecord record = read_run_record(folder.path());
  CHECK(record.id == "a1");
  CHECK(record.working_directory == "/w");
  CHECK(record.origin.step == 7);
  CHECK(record.origin.path == "/x/step-7");
  CHECK(record.origin.run == "b2");
  REQUIRE(record.last);
  CHECK(record.last->step == 9);
  CHECK(record.ended);
  CHECK(record.interrupted);
  CHECK(record.gave_up == "the loss is nan");
  CHECK(record.steps == 9);
  CHECK(record.epochs == 0.5);
  CHECK(record.notes.empty());
}

TEST_CASE("run record: a file that was cut is named, and says nothing") {
  const test::TempFolder folder;
  std::filesystem::create_directory(folder / "checkpoints");
  for (const char* name : {"run_args.json", "metrics.json", "checkpoints/last.json"}) {
    folder.write(name, "");
  }
  const RunRecord record = read_run_record(folder.path());
  CHECK(record.id == "");
  CHECK(!record.ended);
  CHECK(record.last);  // there was one
  REQUIRE(record.notes.size() == 3);
  CHECK(test::contains(record.notes[0], "run_args.json:1: malformed JSON"));
  CHECK(test::contains(record.notes[0], "; what it says is not known"));
  // Of an older program, whose resumed_from was a step.
  folder.write("run_args.json", R"({"resumed_from": 3})");
  CHECK(read_run_record(folder.path()).origin.step == 0);
}

}  // namespace
}  // namespace fsdp::tools
