// What ranks do together that received different signals; two signals; the limit of time after one;
// the end of a process whose mapped file is cut. The signals of whole runs: tests/e2e/interrupt.sh.
#include "tools/launch/interrupt.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/launch/status.h"

namespace fsdp::tools {
namespace {

// The status of a process of its own that does this.
template <typename F>
int status_of(F work) {
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
    catch_interrupts();
    work();
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(process, &status, 0);
  return status;
}

void wait_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace

TEST_CASE("interrupt: signals that come together are one, a later one ends the process") {
  CHECK(status_of([] {
          ::raise(SIGTERM);
          ::raise(SIGTERM);
          ::raise(SIGINT);
          if (received_interrupt() != SIGTERM) ::_exit(9);
        }) == 0);
  const int later = status_of([] {
    ::raise(SIGTERM);
    wait_ms(600);
    ::raise(SIGINT);
    wait_ms(5000);
  });
  CHECK(WIFSIGNALED(later));
  CHECK(WTERMSIG(later) == SIGINT);
  CHECK(status_of([] {
          ::raise(SIGUSR1);  // is followed by SIGTERM
          wait_ms(600);
          ::raise(SIGTERM);
        }) == 0);
}

TEST_CASE("interrupt: signals wait until ranks have found each other") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const int status = status_of([&] {
    ::signal(SIGTERM, SIG_DFL);
    const auto tell = [&](int signal) {
      static_cast<void>(!::write(ends[1], &signal, sizeof signal));
    };
    {
      const SignalsWait wait;
      tell(waiting_signal());
      ::kill(::getpid(), SIGTERM);
      tell(waiting_signal());
    }
    tell(-1);
  });
  ::close(ends[1]);
  int told[3] = {-2, -2, -2};
  CHECK(::read(ends[0], told, sizeof told) == 2 * sizeof(int));  // no third: it has ended
  ::close(ends[0]);
  CHECK(told[0] == 0);
  CHECK(told[1] == SIGTERM);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
}

TEST_CASE("interrupt: a run that takes longer than its grace ends with the status of the signal") {
  const int over = status_of([] {
    const GraceLimit limit(std::chrono::seconds(1), 0);
    ::raise(SIGTERM);
    wait_ms(10000);
  });
  CHECK(WIFEXITED(over));
  CHECK(WEXITSTATUS(over) == 143);
  const int requeued = status_of([] {
    const GraceLimit limit(std::chrono::seconds(1), 1);
    wait_ms(100);
    ::raise(SIGUSR1);
    wait_ms(10000);
  });
  CHECK(WEXITSTATUS(requeued) == status::kStartAgain);
  // Without a limit, without a signal, and with an end in time nothing happens.
  CHECK(status_of([] {
          const GraceLimit none(std::chrono::seconds(0), 0);
          ::raise(SIGTERM);
          wait_ms(300);
        }) == 0);
  CHECK(status_of([] {
          const GraceLimit limit(std::chrono::seconds(1), 0);
          ::raise(SIGTERM);
          wait_ms(300);
        }) == 0);
}

TEST_CASE("interrupt: ranks agree on a signal, and to be started again wins") {
  CHECK(agreed_signal({0, 0}) == 0);
  CHECK(agreed_signal({0, SIGINT, 0}) == SIGINT);
  CHECK(agreed_signal({SIGTERM, SIGUSR1, 0}) == SIGUSR1);
  CHECK(agreed_signal({SIGUSR1, SIGTERM}) == SIGUSR1);
}

namespace {

TEST_CASE("bus error: the file that is mapped at an address") {
  const std::string maps =
      "55d0-55e0 r-xp 00000000 08:01 42   /usr/bin/fsdp\n"
      "7f0000-7f0800 r--s 00000000 08:01 43   /data/my tokens.bin\n"
      "7fff0000-7fff8000 rw-p 00000000 00:00 0   [stack]\n";
  CHECK(mapped_file(maps, 0x55d0) == "/usr/bin/fsdp");
  CHECK(mapped_file(maps, 0x7f07ff) == "/data/my tokens.bin");
  CHECK(mapped_file(maps, 0x7f0800).empty());
  CHECK(mapped_file(maps, 0x7fff0001).empty());
  CHECK(mapped_file("", 1).empty());
}

// In a process of its own; returns its status and what it said.
std::pair<int, std::string> end_of(const std::filesystem::path& file, bool mapped,
                                   const std::filesystem::path& errors) {
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(::open(errors.c_str(), O_CREAT | O_WRONLY, 0600), STDERR_FILENO);
    name_bus_errors();
    if (mapped) {
      const MappedFile text(file);
      if (::truncate(file.c_str(), 0) == 0) {
        ::_exit(static_cast<int>(text.data()[5000]) == 'x' ? 3 : 4);  // does not get there
      }
    }
    ::raise(SIGBUS);  // of no file
    ::_exit(5);
  }
  int status = 0;
  ::waitpid(process, &status, 0);
  return {status, read_file(errors)};
}

TEST_CASE("bus error: a mapped file that is cut is named; any other bus error is what it was") {
  const test::TempFolder folder;
  const std::filesystem::path file = folder / "cut.bin";
  write_file_atomically(file, std::string(10000, 'x'));
  const auto [cut, said] = end_of(file, true, folder / "cut.txt");
  CHECK(WIFEXITED(cut));
  CHECK(WEXITSTATUS(cut) == 1);
  CHECK(said == "fsdp: " + file.string() +
                    ": cannot be read any more: the file was cut while it was in use, or its disk "
                    "failed\n");
  const auto [raised, nothing] = end_of(file, false, folder / "raised.txt");
  CHECK(WIFSIGNALED(raised));
  CHECK(nothing.empty());
}

}  // namespace
}  // namespace fsdp::tools
