// The process above a job, with shell commands in place of the program: statuses, signals,
// restarts. With a real run: tests/e2e/launch.sh.
#include "tools/jobs/parent.h"

#include <csignal>
#include <sstream>
#include <thread>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/launch/end_note.h"
#include "tools/report/run_costs.h"
#include "tools/report/run_reader.h"

namespace fsdp::tools {
namespace {

struct Shell {
  ParentOptions options;
  std::vector<std::string> said;

  explicit Shell(const std::string& script) {
    options.job = {.program = "/bin/sh", .arguments = {"-c", script}};
    options.say = [this](const std::string& line) { said.push_back(line); };
  }
  // Sends the signals to this process, one after the other, once the file is there.
  int run(const std::filesystem::path& file = {}, const std::vector<int>& signals = {},
          std::chrono::milliseconds apart = std::chrono::milliseconds(100)) {
    std::thread sends([&] {
      sigset_t all;
      sigfillset(&all);
      ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
      for (const int signal : signals) {
        while (!is_there(file)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ::kill(::getpid(), signal);
        std::this_thread::sleep_for(apart);
      }
    });
    const int status = keep_running(options);
    sends.join();
    return status;
  }
};

// Signals are the process's: in a copy of it, which has no other threads.
int in_a_process(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int state = 0;
  ::waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

TEST_CASE("parent: the status is the job's") {
  CHECK(Shell("exit 0").run() == 0);
  CHECK(Shell("exit 12").run() == 12);
  CHECK(Shell("kill -9 $$").run() == 137);
#ifndef __SANITIZE_THREAD__  // which takes the threads of the parent for leaks of the child
  Shell absent("");
  absent.options.job.program = "/no/such/program";
  CHECK(absent.run() == 78);
#endif
}

TEST_CASE("parent: the job's output is appended to files") {
  const test::TempFolder folder;
  Shell shell("echo said; echo wrong >&2");
  shell.options.output = folder / "out";
  shell.options.errors = folder / "err";
  CHECK(shell.run() == 0);
  shell.options.errors = folder / "out";
  CHECK(shell.run() == 0);
  CHECK(read_file(folder / "out") == "said\nsaid\nwrong\n");
  CHECK(read_file(folder / "err") == "wrong\n");
  shell.options.output = folder / "no/such/folder";
  CHECK(test::contains(test::error_of([&] { keep_running(shell.options); }),
                       "no/such/folder: cannot be written"));
}

TEST_CASE("parent: a job that crashes is started again, and told how often and since when") {
  const test::TempFolder folder;
  const std::string count = (folder / "count").string();
  const std::string ended = (folder / "ended").string();
  Shell shell("echo $FSDP_RESTARTS >>" + count + "; echo $FSDP_ENDED_BEFORE >>" + ended +
              "; [ $FSDP_RESTARTS = 2 ] || exit 1");
  const double begin = unix_time();
  shell.options.restarts = {.most = 5, .first_pause = std::chrono::seconds(0)};
  shell.options.run_directory = folder.path();
  CHECK(shell.run() == 0);
  CHECK(read_file(count) == "0\n1\n2\n");
  std::istringstream times(read_file(ended));
  double first = -1, second = 0, third = 0;
  times >> first >> second >> third;
  CHECK(first == 0);
  CHECK(second >= begin - 0.001);  // it is given in milliseconds
  CHECK(third >= second);
  CHECK(third <= unix_time() + 0.001);
  REQUIRE(shell.said.size() == 2);
  CHECK(test::contains(shell.said[1], "ended with status 1; the last checkpoint is of step 0"));
}

// As a start of the run leaves it that has come to a step.
std::string step_of(const std::filesystem::path& run) {
  return "echo '{\"seen\": '$(date +%s.%N)', \"step\": 9, \"wall_time_s\": 1}' >" +
         (run / "progress.json").string();
}

TEST_CASE("parent: it gives up where restarts bring nothing") {
  const test::TempFolder folder;
  note_last_checkpoint(folder.path(), {7, "", ""});
  folder.write("config.yaml", "");
  Shell shell(step_of(folder.path()) + "; exit 1");
  shell.options.restarts = {.most = 50, .first_pause = std::chrono::seconds(0)};
  shell.options.run_directory = folder.path();
  CHECK(shell.run() == 76);
  CHECK(test::contains(shell.said.back(), "brought no checkpoint after step 7: given up"));
  const auto end = read_end_note(folder.path());
  REQUIRE(end);
  CHECK(end->status == 76);
  CHECK(
      test::contains(end->cause, "fsdp launch: the job ended with status 1; 3 restarts in a row"));
}

TEST_CASE("parent: a signal is passed on, to mpirun as SIGUSR1, and ends the restarts") {
  const test::TempFolder folder;
  const auto script = [&](const std::string& name) {
    return "trap 'echo TERM >>" + (folder / name).string() +
           "; exit 143' TERM; trap 'echo USR1 >>" + (folder / name).string() +
           "; exit 75' USR1; : >" + (folder / name).string() + "; while :; do sleep 0.02; done";
  };
  CHECK(in_a_process([&] { return Shell(script("local")).run(folder / "local", {SIGTERM}); }) ==
        143);
  CHECK(read_file(folder / "local") == "TERM\n");
  CHECK(in_a_process([&] { return Shell(script("usr1")).run(folder / "usr1", {SIGUSR1}); }) == 75);
}

TEST_CASE("parent: a second signal ends a job that does not listen") {
  const test::TempFolder folder;
  const std::string started = (folder / "started").string();
  CHECK(in_a_process([&] {
          return Shell("trap : INT; : >" + started + "; while :; do sleep 0.02; done")
              .run(started, {SIGINT, SIGTERM}, std::chrono::milliseconds(600));
        }) == 130);
}

// What a batch system sends, and GNU timeout: the job has its time to save.
TEST_CASE("parent: SIGTERM after SIGUSR1, and signals together, are no second signal") {
  const test::TempFolder folder;
  const auto status_of = [&](const std::vector<int>& signals, int apart_ms) {
    const std::string started = (folder / std::to_string(signals.front())).string();
    Shell job(
        "trap 'asked=1; sleep 1; exit 75' USR1; trap '[ $asked ] || { sleep 1; exit 143; }' TERM; "
        ": >" +
        started + "; while :; do sleep 0.02; done");
    return in_a_process(
        [&] { return job.run(started, signals, std::chrono::milliseconds(apart_ms)); });
  };
  CHECK(status_of({SIGTERM, SIGTERM}, 0) == 143);
  CHECK(status_of({SIGUSR1, SIGTERM}, 600) == 75);
}

TEST_CASE("parent: a run whose folder is gone is not begun anew") {
  const test::TempFolder folder;
  const std::filesystem::path run = folder / "run";
  note_last_checkpoint(run, {7, "", ""});
  Shell shell("[ -e " + run.string() + " ] || exit 0; rm -r " + run.string() + "; exit 1");
  shell.options.restarts = {
      .most = 9, .first_pause = std::chrono::seconds(0), .patience = std::chrono::seconds(0)};
  shell.options.run_directory = run;
  CHECK(shell.run() == 76);
  REQUIRE(shell.said.size() == 1);
  CHECK(test::contains(shell.said[0], "could not go on for 0 s (--patience): given up"));
}

// The first start of the parent: it sees the checkpoint while the job runs.
TEST_CASE("parent: a storage that is away goes on when it is back, with what was known before") {
  const test::TempFolder folder;
  const std::filesystem::path run = folder / "run", away = folder / "away";
  const std::string seen = (folder / "seen").string();
  const std::string script =
      "echo $FSDP_DURABLE_STEP $FSDP_STATUS_BEFORE >>" + seen +
      "; [ $FSDP_RESTARTS = 0 ] || exit 0; " + "mkdir -p " + (run / "checkpoints").string() + "; " +
      step_of(run) + "; echo '{\"step\": 12}' >" + (run / "checkpoints" / "last.json").string() +
      "; sleep 0.8; mv " + run.string() + " " + away.string() + "; ( sleep 0.3; mv " +
      away.string() + " " + run.string() + " ) & exit 3";
  Shell shell(script);
  shell.options.restarts = {.most = 9, .first_pause = std::chrono::seconds(0)};
  shell.options.run_directory = run;
  shell.options.beat = std::chrono::milliseconds(20);
  CHECK(shell.run() == 0);
  CHECK(read_file(seen) == "0 -1\n12 3\n");
  REQUIRE(shell.said.size() == 2);
  CHECK(test::contains(shell.said[0], "the last checkpoint is of step 12; another start"));
  CHECK(test::contains(shell.said[1], "has the mount gone?: waiting"));
}

// The beat of a parent is a second: a run that is younger is looked for more often.
TEST_CASE("parent: a storage that goes right after the first steps is waited for") {
  const test::TempFolder folder;
  const std::filesystem::path run = folder / "run", away = folder / "away";
  const std::string count = (folder / "count").string();
  Shell shell("echo >>" + count + "; [ -e " + away.string() + " ] && exit 0; mkdir -p " +
              run.string() + "; " + step_of(run) + "; sleep 0.5; mv " + run.string() + " " +
              away.string() + "; exit 3");
  shell.options.restarts = {
      .most = 9, .first_pause = std::chrono::seconds(0), .patience = std::chrono::seconds(0)};
  shell.options.run_directory = run;
  CHECK(shell.run() == 76);
  CHECK(read_file(count) == "\n");
}

TEST_CASE("parent: a job that is stopped as a whole is ended, and started again") {
  const test::TempFolder folder;
  CHECK(in_a_process([&] {
          Shell shell("[ $FSDP_RESTARTS = 0 ] || exit 0; kill -STOP $$; exit 9");
          shell.options.restarts = {.most = 9, .first_pause = std::chrono::seconds(0)};
          shell.options.run_directory = folder.path();
          shell.options.silence = std::chrono::seconds(0);
          shell.options.beat = std::chrono::milliseconds(20);
          const int status = shell.run();
          const bool said =
              !shell.said.empty() && test::contains(shell.said[0], "is stopped: the job is ended");
          return said ? status : 99;
        }) == 0);
}

TEST_CASE("parent: what a killed mpirun may leave is named, others' files are not") {
  const test::TempFolder shared, temporary;
  CHECK(leftovers_note(shared.path(), temporary.path(), ::geteuid()) == "");
  shared.write("vader_segment.host.0.1", "");
  CHECK(leftovers_note(shared.path(), temporary.path(), ::geteuid() + 1) == "");
  CHECK(test::contains(leftovers_note(shared.path(), temporary.path(), ::geteuid()),
                       "rm -r " + (shared / "vader_segment.*").string()));
}

}  // namespace
}  // namespace fsdp::tools
