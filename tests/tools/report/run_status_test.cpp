// What is said of a run: one that goes on, was killed, has failed, is done; also where files are
// cut.
#include "tools/report/run_status.h"

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/launch/backend_choice.h"
#include "tools/report/failure_log.h"

namespace fsdp::tools {
namespace {

constexpr const char* kLog =
    "{\"step\":10,\"loss\":3.5,\"tokens_per_s\":900,\"wall_time_s\":5}\n"
    "{\"step\":30,\"loss\":2.25,\"tokens_per_s\":1000,\"wall_time_s\":15}\n"
    "{\"step\":30,\"validation_loss\":2.5}\n{\"step\":40,\"lo";

void make_run(const test::TempFolder& folder) {
  folder.write("config.yaml", "");
  folder.write(
      "run_args.json",
      R"({"max_steps": 50, "hosts": ["a", "a", "b"], "started": "2026-01-31T12:00:00+0000"})");
  folder.write("metrics.jsonl", kLog);
  folder.write("progress.json",
               R"({"seen": 1000, "step": 40, "wall_time_s": 20, "durable_step": 25, "restarts": 2,)"
               R"( "lost_s": 3, "detection_s": 1, "pause_s": 4, "restart_s": 2})");
}

TEST_CASE("run status: one that was killed") {
  const test::TempFolder folder;
  make_run(folder);
  folder.write("run.lock", "process 1 on " + host_name() + " since noon");
  append_failure(folder.path(), {.end = {.time = 1e9, .status = 137, .cause = "gone", .host = "b"},
                                 .steps_lost = 7});
  const double now = unix_time();
  const std::string text = describe(read_run_status(folder.path(), now), now);
  CAPTURE(text);
  CHECK(test::contains(text, ": killed, or lost with its host"));
  CHECK(test::contains(text, "\n  on a, b, started 2026-01-31T12:00:00+0000\n"));
  CHECK(test::contains(text, "step 40 of 50  loss 2.2500  validation 2.5000  1,000 tokens/s\n"));
  CHECK(test::contains(text, "last durable checkpoint: step 25\n"));
  CHECK(
      test::contains(text, "restarts 2; 66.7 % of the time in steps that count; 3 s of work lost"));
  CHECK(test::contains(text, "2001-09-09 01:46:40 UTC on b, status 137: gone; 7 steps lost"));
}

TEST_CASE("run status: the folder of the last checkpoint is one that is there") {
  const test::TempFolder folder;
  make_run(folder);
  folder.write("run_args.json", R"({"working_directory": ")" + folder.path().string() + "\"}");
  std::filesystem::create_directory(folder / "checkpoints");
  folder.write("checkpoints/last.json", R"({"step": 15, "path": "ck/step-15"})");
  const auto said = [&] { return describe(read_run_status(folder.path(), 0), 0); };
  std::filesystem::create_directories(folder / "ck/step-15");
  CHECK(test::contains(said(), "last durable checkpoint: step 25\n"));
  std::filesystem::create_directories(folder / "ck/step-25");
  CHECK(test::contains(said(), "last durable checkpoint: step 25, ck/step-25\n"));
}

TEST_CASE("run status: one that goes on knows when it will be done") {
  const test::TempFolder folder;
  make_run(folder);
  const FileLock lock(folder / "run.lock", "process 1 on here since noon");
  folder.write("progress.json", read_file(folder / "progress.json"));  // after the lock
  const double now = unix_time();
  const RunStatus status = read_run_status(folder.path(), now);
  CHECK(status.condition.state == RunState::kRunning);
  CHECK(status.seconds_left() == 5.0);  // 10 steps, at 2 a second
  const Json json = to_json(status);
  CHECK(json.at("state") == "running");
  CHECK(json.at("eta_s") == 5.0);
  CHECK(json.at("last_durable_step") == 25);
  CHECK(json.at("effective_share") == doctest::Approx(2.0 / 3));
  CHECK(json.at("hosts").dump() == R"(["a","b"])");
  CHECK(json.at("ended").is_null());
  CHECK(test::contains(describe(status, now), "  ETA 0:05\n"));
  CHECK(test::contains(describe(read_run_status(folder.path(), now + 300), now + 300),
                       ": hung: no sign of life for 5:00\n"));
}

TEST_CASE("run status: one that has failed, one that is done, one that is in its set-up, none") {
  const test::TempFolder folder;
  folder.write("config.yaml", "");
  const auto said = [&] { return describe(read_run_status(folder.path(), 0), 0); };
  CHECK(test::contains(test::error_of(said),
                       "no run directory: expected config.yaml and run_args.json"));
  CHECK(test::contains(test::error_of([&] { read_run_status(folder / "absent", 0); }),
                       "absent: no such folder"));
  folder.write("run_args.json", "{");  // cut
  {
    const FileLock lock(folder / "run.lock", "process 1 on here since noon");
    CHECK(test::contains(said(), ": running, in its set-up\n"));
    CHECK(test::contains(said(), "  no step is finished\n  no checkpoint\n"));
  }
  leave_end_note(folder.path(), {.time = 1e9, .status = 76, .cause = "the loss is not finite"});
  CHECK(test::contains(
      said(), ": failed with status 76: the loss is not finite (2001-09-09 01:46:40 UTC)\n"));
  folder.write("metrics.json", R"({"steps": 50, "ended": {"status": 0, "reason": "done"}})");
  CHECK(test::contains(said(), ": ended: done"));
  CHECK(test::contains(said(), "  step 50\n"));
}

}  // namespace
}  // namespace fsdp::tools
