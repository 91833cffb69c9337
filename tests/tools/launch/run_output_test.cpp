// Lines for a reader that reads all of them, later, no more, or not at all. Under mpirun:
// tests/e2e/interrupt.sh.
#include "tools/launch/run_output.h"

#include <csignal>
#include <thread>

#include <doctest/doctest.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/launch/interrupt.h"

namespace fsdp::tools {
namespace {

struct Pipe {
  int ends[2] = {-1, -1};
  std::FILE* in = nullptr;
  Pipe() {
    REQUIRE(::pipe(ends) == 0);
    in = ::fdopen(ends[1], "w");
  }
};

std::string line(int number) { return "line " + std::to_string(number) + "\n"; }

TEST_CASE("run output: a slow reader gets every line, in order") {
  Pipe pipe;
  std::string expected, got;
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    char part[4096];
    for (ssize_t n = 0; (n = ::read(pipe.ends[0], part, sizeof part)) > 0;) {
      got.append(part, static_cast<size_t>(n));
    }
  });
  {
    RunOutput output(pipe.in);
    for (int i = 0; i < 20'000; ++i) {  // more than a pipe holds
      expected += line(i);
      output.put(line(i));
    }
  }
  std::fclose(pipe.in);
  reader.join();
  CHECK(got == expected);
}

TEST_CASE("run output: a file") {
  const test::TempFolder folder;
  std::FILE* file = std::fopen((folder / "out").c_str(), "w");
  {
    RunOutput output(file);
    output.put("a\n");
    CHECK(read_file(folder / "out") == "a\n");
    output.put("b\n");
  }
  std::fclose(file);
  CHECK(read_file(folder / "out") == "a\nb\n");
}

TEST_CASE("run output: a reader that is gone is an error of the FILE") {
  outlive_reader();
  Pipe pipe;
  RunOutput output(pipe.in);
  ::close(pipe.ends[0]);
  output.put("text\n");
  CHECK(std::ferror(pipe.in) != 0);
}

// Signals are the process's: in one of its own.
TEST_CASE("run output: a reader that does not read holds the run until a signal comes") {
  const pid_t process = ::fork();
  if (process == 0) {
    Pipe pipe;
    catch_interrupts();
    const itimerval soon = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 100'000}};
    ::setitimer(ITIMER_REAL, &soon, nullptr);  // SIGALRM
    {
      RunOutput output(pipe.in);
      for (int i = 0; received_interrupt() == 0; ++i) output.put(line(i));
      for (int i = 0; i < 100; ++i) output.put(line(i));
    }
    ::_exit(0);
  }
  int status = -1;
  const auto begin = std::chrono::steady_clock::now();
  while (::waitpid(process, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(20)) {
      ::kill(process, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(WIFEXITED(status));
}

}  // namespace
}  // namespace fsdp::tools
