// A launcher that waits for a rank that is gone: here a process that has its name and sleeps.
#include <csignal>
#include <functional>

#include <doctest/doctest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/launch/job_end.h"

namespace fsdp::tools {
namespace {

using std::chrono::milliseconds;

// How a process called `name` ends that starts a rank and sleeps for a second: the signal, or 0.
int end_of_launcher(const char* name, const std::function<void()>& rank, bool deaf = false) {
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ::signal(SIGTERM, deaf ? SIG_IGN : SIG_DFL);  // doctest's handler speaks
    ::prctl(PR_SET_NAME, name);
    const pid_t child = ::fork();
    if (child == 0) {
      rank();
      ::_exit(1);
    }
    ::waitpid(child, nullptr, 0);
    for (int i = 0; i < 10; ++i) ::usleep(100'000);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(launcher, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST_CASE("launcher guard: a launcher that outlives a rank of its start is ended") {
  const auto dies = [] {
    new LauncherGuard(milliseconds(100));
    ::raise(SIGKILL);
  };
  CHECK(end_of_launcher("mpirun", dies) == SIGTERM);
  CHECK(end_of_launcher("orted", dies) == SIGTERM);
  CHECK(end_of_launcher("a-shell", dies) == 0);
}

TEST_CASE("launcher guard: once the ranks know of each other the launcher is left alone") {
  CHECK(end_of_launcher("mpirun", [] { LauncherGuard guard(milliseconds(100)); }) == 0);
}

TEST_CASE("launcher guard: a launcher has some time to end by itself") {
  CHECK(end_of_launcher("mpiexec", [] { end_launcher_after(milliseconds(100)); }) == SIGTERM);
  CHECK(end_of_launcher("mpiexec", [] { end_launcher_after(milliseconds(3000)); }) == 0);
  const auto soon = [] { end_launcher_after(milliseconds(100), milliseconds(200)); };
  CHECK(end_of_launcher("prterun", soon) == SIGTERM);
  CHECK(end_of_launcher("prterun", soon, true) == SIGKILL);
}

}  // namespace
}  // namespace fsdp::tools
