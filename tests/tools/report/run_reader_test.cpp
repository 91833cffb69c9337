// The files of a run's directory, read back: what the run was, whether it lives, where it came
// from; also where files were cut. Folders that are no runs: compare_runs_test.cpp.
#include "tools/report/run_reader.h"

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/launch/backend_choice.h"
#include "tools/report/run_costs.h"

namespace fsdp::tools {
namespace {

TEST_CASE("finished run: settings by dotted key, metrics as they are") {
  const test::TempFolder folder;
  folder.write("config.yaml",
               "train: {lr: 1e-4, schedule: {kind: linear}}\ndata: {train: [a, b]}\n");
  folder.write("metrics.json", R"({"steps": 3, "memory": {"ledger": {"total": 7}}, "gpu": null})");
  const FinishedRun run = read_finished_run(folder.path());
  CHECK(run.settings == std::map<std::string, std::string>{{"data.train", "[a, b]"},
                                                           {"train.lr", "1e-4"},
                                                           {"train.schedule.kind", "linear"}});
  CHECK(number_at(run.metrics, "/memory/ledger/total") == 7.0);
  CHECK(!number_at(run.metrics, "/gpu"));
  CHECK(!number_at(run.metrics, "/memory/ledger"));
  CHECK(!number_at(run.metrics, "/missing"));
}

std::string lock_text(const std::string& host) { return "process 4711 on " + host + " since noon"; }

TEST_CASE("run state: a run whose directory a process has, and one that nobody has any more") {
  const test::TempFolder folder;
  folder.write("config.yaml", "");
  {
    const FileLock lock(folder / "run.lock", lock_text(host_name()));
    const RunCondition set_up = condition_of(folder.path(), unix_time());
    CHECK(set_up.state == RunState::kRunning);
    CHECK(set_up.holder == lock_text(host_name()));
    CHECK(set_up.silent_s < 0);
    folder.write("progress.json", "");
    CHECK(condition_of(folder.path(), unix_time()).state == RunState::kRunning);
    CHECK(condition_of(folder.path(), unix_time()).silent_s >= 0);
    CHECK(condition_of(folder.path(), unix_time() + 100).state == RunState::kSilent);
    // What the start before has left is no sign of this one.
    std::filesystem::last_write_time(
        folder / "progress.json",
        std::filesystem::last_write_time(folder / "run.lock") - std::chrono::hours(1));
    CHECK(condition_of(folder.path(), unix_time()).silent_s < 0);
    folder.write("progress.json", "");
  }
  CHECK(condition_of(folder.path(), unix_time()).state == RunState::kKilled);
  // Without a lock that other hosts see, the sign of life counts.
  folder.write("run.lock", lock_text("another-host"));
  CHECK(condition_of(folder.path(), unix_time()).state == RunState::kRunning);
  CHECK(condition_of(folder.path(), unix_time() + 100).state == RunState::kKilled);
}

TEST_CASE("run state: how a run has ended") {
  const test::TempFolder folder;
  folder.write("config.yaml", "");
  CHECK(!end_of_run(folder.path()));
  leave_end_note(folder.path(), {.time = 7, .status = 76, .cause = "the loss is not finite"});
  CHECK(condition_of(folder.path(), 0).state == RunState::kFailed);
  CHECK(end_of_run(folder.path())->cause == "the loss is not finite");
  folder.write("metrics.json", R"({"ended": {"status": 75, "reason": "stopped by SIGUSR1"}})");
  const RunCondition ended = condition_of(folder.path(), 0);
  CHECK(ended.state == RunState::kEnded);
  CHECK(ended.end->status == 75);
  CHECK(ended.end->cause == "stopped by SIGUSR1");
  CHECK(ended.end->time > 1e9);
  folder.write("metrics.json", R"({"ended": {"status": 76, "reason": "a loss is not finite"}})");
  CHECK(condition_of(folder.path(), 0).state == RunState::kFailed);
  folder.write("metrics.json", R"({"steps": 3})");  // of an older program
  CHECK(end_of_run(folder.path())->status == 0);
  folder.write("metrics.json", R"({"ended": )");  // cut
  CHECK(condition_of(folder.path(), 0).state == RunState::kEnded);
  CHECK(end_of_run(folder.path())->cause == "its metrics.json cannot be read");
}

TEST_CASE("run state: the end of an earlier start, while the next one sets itself up") {
  const test::TempFolder folder;
  folder.write("config.yaml", "");
  const auto age = [&](const char* name) {
    std::filesystem::last_write_time(
        folder / name,
        std::filesystem::last_write_time(folder / "run.lock") - std::chrono::seconds(5));
  };
  const FileLock lock(folder / "run.lock", lock_text(host_name()));
  for (const char* name : {kEndNote, "metrics.json"}) {
    CAPTURE(name);
    leave_end_note(folder.path(), {.time = 7, .status = 76, .cause = "an earlier start"});
    if (name != std::string(kEndNote)) folder.write(name, R"({"ended": {"status": 0}})");
    CHECK(condition_of(folder.path(), unix_time()).end);  // the end of this start
    age(name);
    const RunCondition condition = condition_of(folder.path(), unix_time());
    CHECK(condition.state == RunState::kRunning);
    CHECK(!condition.end);
  }
}

TEST_CASE("run state: where the last start was") {
  const test::TempFolder folder;
  CHECK(only_host_of(folder.path()) == "");
  folder.write("run_args.json", R"({"hosts": ["a", "a"]})");
  CHECK(only_host_of(folder.path()) == "a");
  folder.write("run_args.json", R"({"hosts": ["a", "b"]})");
  CHECK(only_host_of(folder.path()) == "");
}

TEST_CASE("run state: which folders are those of runs") {
  const test::TempFolder folder;
  CHECK(!is_run_folder(folder.path()));
  folder.write("config.yaml", "");
  CHECK(!is_run_folder(folder.path()));
  folder.write("run_args.json", "{}");
  CHECK(is_run_folder(folder.path()));
}

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
