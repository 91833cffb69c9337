// What the parent sees of a run, and what it takes for a storage that has gone.
#include "tools/jobs/run_watch.h"

#include <thread>

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/report/run_reader.h"

namespace fsdp::tools {
namespace {

constexpr std::chrono::seconds kLimit(10);

TEST_CASE("run watch: a run that has begun, and what it shows of itself") {
  const test::TempFolder folder;
  const auto run = folder / "run";
  RunWatch watch(run);
  CHECK(watch.look(kLimit, true).problem == "");  // it may begin there
  CHECK(!is_there(run));
  note_last_checkpoint(run, {12, "", ""});
  folder.write("run/progress.json", R"({"seen": 5, "step": 1, "wall_time_s": 1})");
  const RunWatch::Look look = watch.look(kLimit, true);
  CHECK(look.problem == "");
  CHECK(look.durable_step == 12);
  CHECK(look.seen == 5);
  CHECK(look.sign_of_life > 0);
  CHECK(names_in(run) == std::vector<std::string>{"checkpoints", "progress.json"});
  folder.write("run/progress.json", "{");  // half of it is written
  CHECK(watch.look(kLimit).problem == "");
}

TEST_CASE("run watch: a run that was there is missed, also where an empty folder is in its place") {
  const test::TempFolder folder;
  const auto run = folder / "run";
  note_last_checkpoint(run, {12, "", ""});
  RunWatch watch(run);
  watch.look(kLimit);
  std::filesystem::rename(run, folder / "away");
  CHECK(watch.look(kLimit).problem == run.string() + " is not there: has the mount gone?");
  CHECK(watch.look(kLimit).durable_step == 12);
  std::filesystem::create_directory(run);
  CHECK(watch.look(kLimit).problem == run.string() + " has no run any more: has the mount gone?");
  std::filesystem::remove(run);
  std::filesystem::rename(folder / "away", run);
  CHECK(watch.look(kLimit, true).problem == "");
}

TEST_CASE("run watch: a run that has done a step is missed, one that has only begun is not") {
  const test::TempFolder folder;
  RunWatch watch(folder / "run");
  for (const bool stepped : {false, true}) {
    std::filesystem::create_directory(folder / "run");
    folder.write("run/run_args.json", R"({"run": "12"})");
    folder.write("run/progress.json", stepped ? R"({"seen": 5, "step": 1, "wall_time_s": 1})"
                                              : R"({"seen": 0, "step": 0, "wall_time_s": 0})");
    CHECK(watch.look(kLimit).problem == "");
    CHECK(watch.expects_run() == stepped);
    std::filesystem::remove_all(folder / "run");
    CHECK((watch.look(kLimit, true).problem != "") == stepped);
  }
}

TEST_CASE("run watch: a look that takes longer than its time is taken later") {
  constexpr std::chrono::milliseconds kNone(0);
  const test::TempFolder folder;
  const std::string away = folder.path().string() + " does not answer";
  std::filesystem::create_directory(folder / "checkpoints");
  // So long that no look comes back at once.
  folder.write("checkpoints/last.json", "{\"step\": 12" + std::string(20'000'000, ' ') + "}");
  RunWatch watch(folder.path());
  CHECK(watch.look(kNone).problem == away);
  for (int i = 0; i < 2; ++i) {  // each begins another
    const auto end = std::chrono::steady_clock::now() + kLimit;
    RunWatch::Look look = {.problem = away};
    while (look.problem == away && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      look = watch.look(kNone);
    }
    CHECK(look.problem == "");
    CHECK(look.durable_step == 12);
  }
  // Whether a file can be written there no earlier look has tried.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(watch.look(kNone, true).problem == away);
  CHECK(watch.look(kNone, true).durable_step == 12);
  CHECK(watch.look(kLimit, true).problem == "");
}

TEST_CASE("run watch: the last checkpoint of a run that has begun anew is an earlier one") {
  const test::TempFolder folder;
  RunWatch watch(folder.path());
  for (const int64_t step : {2000, 20, 40}) {
    note_last_checkpoint(folder.path(), {step, "", ""});
    CHECK(watch.look(kLimit).durable_step == step);
  }
  folder.write("checkpoints/last.json", "{");
  CHECK(watch.look(kLimit).durable_step == 40);
}

TEST_CASE("run watch: the end that the parent leaves has the job's own in it") {
  const test::TempFolder folder;
  folder.write("config.yaml", "");
  leave_end_note(folder.path(), {.status = 1, .cause = "no room", .host = "a", .rank = 1});
  RunWatch(folder.path()).leave_end({.time = 5, .status = 76, .cause = "given up"}, kLimit);
  const auto end = read_end_note(folder.path());
  REQUIRE(end);
  CHECK(end->status == 76);
  CHECK(end->cause == "given up; the last start: no room");
  CHECK(end->host == "a");
}

}  // namespace
}  // namespace fsdp::tools
