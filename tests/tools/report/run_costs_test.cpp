// What failures cost a run, with known times: over several starts, and through progress.json.
#include "tools/report/run_costs.h"

#include <thread>

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("run costs: what a failure loses, and how long nobody noticed it") {
  // Seen at second 1000 with 50 s of work; the job ended 7 s later, and the checkpoint had 30 s.
  const RunProgress failed = {.seen = 1000, .step = 120, .wall_time_s = 50, .costs = {}};
  const RunProgress second = begin_again(failed, {.steps = 100, .wall_time_s = 30}, 1007);
  CHECK(second.costs == RunCosts{.restarts = 1, .lost_s = 20, .detection_s = 7});
  CHECK(second.step == 100);
  CHECK(second.wall_time_s == 30);
  CHECK(second.seen == 0);
  // A start that ends before its first step loses nothing, and nobody knows since when it did
  // nothing.
  const RunProgress third = begin_again(second, {.steps = 100, .wall_time_s = 30}, 1100);
  CHECK(third.costs == RunCosts{.restarts = 2, .lost_s = 20, .detection_s = 7});
  // Of the next failure nobody saw the end; its work went back to the beginning.
  RunProgress fourth = third;
  fourth.seen = 1200, fourth.wall_time_s = 36;
  CHECK(begin_again(fourth, {}, 0).costs ==
        RunCosts{.restarts = 3, .lost_s = 56, .detection_s = 7});
  // A run that was stopped in order loses nothing.
  CHECK(begin_again(failed, {.steps = 120, .wall_time_s = 50.5}, 0).costs ==
        RunCosts{.restarts = 1});
}

TEST_CASE("run costs: the share of the time in which steps were done that count") {
  CHECK(RunCosts().effective_share(0) == 1);
  CHECK(RunCosts().effective_share(10) == 1);
  CHECK(RunCosts{.lost_s = 1, .detection_s = 2, .pause_s = 3, .restart_s = 4}.effective_share(30) ==
        0.75);
}

TEST_CASE("progress file: the pause before a restart ends with its process, at the first step") {
  const test::TempFolder folder;
  RunProgress begin = {.step = 5, .costs = {.restarts = 1, .pause_s = 1}};
  begin.ended_before = unix_time() - 60;
  double pause_s = 0, restart_s = 0;
  ProgressFile file(
      folder / "progress.json", begin, [] { return 10.0; },
      [&](double pause, double restart) { pause_s = pause, restart_s = restart; });
  CHECK(restart_s == 0);
  file.step({.steps = 6});
  CHECK(restart_s == 10);
  CHECK(pause_s == doctest::Approx(50).epsilon(0.1));
  CHECK(file.costs().pause_s == 1 + pause_s);
}

TEST_CASE("progress file: a thread touches it, so that a long step is no silence") {
  const test::TempFolder folder;
  const ProgressFile file(folder / "progress.json", {});
  const auto made = std::filesystem::last_write_time(folder / "progress.json");
  std::filesystem::last_write_time(folder / "progress.json", made - std::chrono::hours(1));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::filesystem::last_write_time(folder / "progress.json") < made &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(std::filesystem::last_write_time(folder / "progress.json") >= made);
}

TEST_CASE("progress file: one that somebody has removed is there again with the next checkpoint") {
  const test::TempFolder folder;
  const auto run = folder / "run", path = run / "progress.json";
  std::filesystem::create_directory(run);
  ProgressFile file(path, {});
  file.step({.steps = 1});
  std::filesystem::remove_all(run);
  file.note_durable(1);  // its folder is elsewhere
  CHECK(!is_there(run));
  std::filesystem::create_directory(run);
  file.note_durable(2);
  CHECK(read_progress(path).durable_step == 2);
  CHECK(read_progress(path).step == 1);
  file.step({.steps = 3}, true);
  CHECK(read_progress(path).step == 3);
}

TEST_CASE("progress file: what a run that may go on has written so far") {
  const test::TempFolder folder;
  const auto path = folder / "progress.json";
  CHECK(!progress_so_far(path));
  folder.write("progress.json", "{\"seen\": 10");
  CHECK(!progress_so_far(path));
  folder.write("progress.json", R"({"seen": 5, "step": 1, "wall_time_s": 1})");
  CHECK(progress_so_far(path)->step == 1);
}

TEST_CASE("run costs: the share of a write that the loop stood still for") {
  CHECK(!RunCosts().save_stall_share());
  CHECK(RunCosts{.save_stall_s = 1, .save_write_s = 4}.save_stall_share() == 0.25);
}

TEST_CASE("progress file: a sign of life after the first step, which ends the restart") {
  const test::TempFolder folder;
  const auto path = folder / "progress.json";
  const RunProgress begin = {.step = 5, .wall_time_s = 2, .costs = {.restarts = 1, .restart_s = 3}};
  double age = 4;
  ProgressFile file(path, begin, [&] { return age; });
  file.step({.steps = 5, .wall_time_s = 2});  // issued, not finished
  CHECK(read_progress(path).seen == 0);
  file.step({.steps = 6, .wall_time_s = 2.5});
  age = 100;
  const RunProgress first = read_progress(path);
  CHECK(first.seen > 1e9);
  CHECK(first.step == 6);
  CHECK(first.wall_time_s == 2.5);
  CHECK(first.costs == RunCosts{.restarts = 1, .restart_s = 7});
  file.add_save(0.5, 2);
  file.step({.steps = 7, .wall_time_s = 3}, true);
  CHECK(read_progress(path).step == 7);
  CHECK(read_progress(path).costs ==
        RunCosts{.restarts = 1, .restart_s = 7, .save_stall_s = 0.5, .save_write_s = 2});
  CHECK(file.costs() == read_progress(path).costs);
}

TEST_CASE("progress file: the first start of a run is no restart; it is not written all the time") {
  const test::TempFolder folder;
  const auto path = folder / "progress.json";
  ProgressFile file(path, {}, [] { return 9.0; });
  file.step({.steps = 1});
  file.step({.steps = 2});
  CHECK(read_progress(path).step <= 2);
  CHECK(read_progress(path).costs == RunCosts{});
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
  file.step({.steps = 3});
  CHECK(read_progress(path).step == 3);
  ProgressFile().step({.steps = 1});  // of another rank
}

TEST_CASE("progress file: one that was cut or is of somebody else is an Error that names it") {
  const test::TempFolder folder;
  for (const char* text : {"", "{\"seen\": 1}", "[]", "{\"seen\": \"x\"}"}) {
    const std::string path = folder.write("progress.json", text).string();
    CHECK(test::contains(test::error_of([&] { read_progress(path); }), path + ":"));
  }
}

}  // namespace
}  // namespace fsdp::tools
