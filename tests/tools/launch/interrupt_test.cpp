// What ranks do together that received different signals; two signals; the limit of time after one.
// The signals of whole runs: tests/e2e/interrupt.sh.
#include "tools/launch/interrupt.h"

#include <chrono>
#include <csignal>
#include <thread>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

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

}  // namespace fsdp::tools
