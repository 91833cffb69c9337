// What the parent sees of a run, and how long a job may be silent.
#include "tools/jobs/run_watch.h"

#include <algorithm>
#include <csignal>
#include <thread>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

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

using std::chrono::seconds;

// Seconds until the job is to be ended, at most 1000; a look each second.
template <typename Look>
int seconds_until_ended(pid_t job, int limit, Look&& look) {
  Silence::Clock::time_point now{};
  Silence silence(job, seconds(limit), now);
  for (int second = 1; second < 1000; ++second) {
    now += seconds(1);
    if (!silence.after(look(second), now).empty()) return second;
  }
  return 1000;
}

TEST_CASE("silence: a file that nothing touches any more, once the job had touched it") {
  const auto touched_until = [](int end) {
    return [end](int second) { return RunWatch::Look{.sign_of_life = 5 + std::min(second, end)}; };
  };
  CHECK(seconds_until_ended(::getpid(), 100, touched_until(50)) == 151);
  CHECK(seconds_until_ended(::getpid(), 5, touched_until(50)) == 111);  // at least a minute
  // A file of an earlier start, and none: the job is in its set-up.
  CHECK(seconds_until_ended(::getpid(), 5, touched_until(0)) == 1000);
  CHECK(seconds_until_ended(::getpid(), 5, [](int) { return RunWatch::Look(); }) == 1000);
  // One that somebody has removed says nothing of the job, until it is there again.
  const auto removed_until = [](int back) {
    return [back](int second) {
      return RunWatch::Look{.sign_of_life = second < 50 ? second : second < back ? 0 : 7};
    };
  };
  CHECK(seconds_until_ended(::getpid(), 5, removed_until(1000)) == 1000);
  CHECK(seconds_until_ended(::getpid(), 5, removed_until(500)) == 561);
  // A storage that does not answer says nothing of the job.
  CHECK(seconds_until_ended(::getpid(), 5, [](int second) {
          return RunWatch::Look{.problem = second > 50 ? "away" : "",
                                .sign_of_life = std::min(second, 50)};
        }) == 1000);
}

TEST_CASE("silence: time in which the parent did not run does not count") {
  Silence::Clock::time_point now{};
  Silence silence(::getpid(), seconds(100), now);
  for (int64_t sign : {1, 2, 2}) {
    CHECK(silence.after({.sign_of_life = sign}, now += seconds(1)) == "");
  }
  CHECK(silence.after({.sign_of_life = 2}, now += std::chrono::hours(9)) == "");
}

TEST_CASE("silence: a process that is stopped, and who is below it") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int state = 0;
  REQUIRE(::waitpid(child, &state, WUNTRACED) == child);
  REQUIRE(WIFSTOPPED(state));
  CHECK(seconds_until_ended(child, 30, [](int) { return RunWatch::Look{.problem = "away"}; }) ==
        31);
  Silence silence(child, seconds(0));
  CHECK(test::contains(silence.after({}, Silence::Clock::now() + seconds(1)), "is stopped"));
  const auto below = processes_below(::getpid());
  CHECK(std::count(below.begin(), below.end(), child) == 1);
  CHECK(std::count(below.begin(), below.end(), ::getpid()) == 0);
  ::kill(child, SIGCONT);
  ::waitpid(child, &state, 0);
}

}  // namespace
}  // namespace fsdp::tools
