// The processes that end the launcher may be copies of a process with threads, so they only make
// system calls; and they hold no file open of which the launcher waits for the end.
#include "tools/launch/launcher_guard.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fsdp::tools {
namespace {

using std::chrono::milliseconds;

// Where the copies find what they use.
constexpr int kLauncher = 0, kRank = 1;

// A handle of the launcher's process of this host, which started this one; -1: it is none that we
// know.
int open_launcher() {
  const pid_t parent = ::getppid();
  std::ifstream file(fmt::format("/proc/{}/comm", parent));
  std::string name;
  std::getline(file, name);
  constexpr std::string_view kLaunchers[] = {"mpirun", "mpiexec", "orterun",
                                             "orted",  "prterun", "prted"};
  const bool known =
      std::find(std::begin(kLaunchers), std::end(kLaunchers), name) != std::end(kLaunchers);
  return known ? static_cast<int>(::syscall(SYS_pidfd_open, parent, 0)) : -1;
}

// Whether the launcher has ended within this time.
bool ended_within(milliseconds wait) {
  pollfd launcher = {kLauncher, POLLIN, 0};
  return ::poll(&launcher, 1, static_cast<int>(wait.count())) != 0;
}

void send_launcher(int signal) { ::syscall(SYS_pidfd_send_signal, kLauncher, signal, nullptr, 0U); }

void end_launcher(milliseconds wait, milliseconds until_kill) {
  if (ended_within(wait)) return;
  send_launcher(SIGTERM);
  if (!ended_within(until_kill)) send_launcher(SIGKILL);
}

// Runs `work` in a process of its own, which has the launcher's handle as file 0 and `file` as 1.
// Returns the process; -1: there is none.
pid_t run_apart(int launcher, int file, const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setsid();
  const int at_launcher = ::fcntl(launcher, F_DUPFD, 2);  // neither may lie where the other goes
  const int at_file = file < 0 ? -1 : ::fcntl(file, F_DUPFD, 2);
  ::dup2(at_launcher, kLauncher);
  ::close(kRank);
  if (at_file >= 0) ::dup2(at_file, kRank);
  for (int other = 2; other < 1024; ++other) ::close(other);
  work();
  ::_exit(0);
}

}  // namespace

void end_launcher_after(milliseconds wait, milliseconds until_kill) {
  const int launcher = open_launcher();
  if (launcher < 0) return;
  run_apart(launcher, -1, [=] { end_launcher(wait, until_kill); });
  ::close(launcher);
}

LauncherGuard::LauncherGuard(milliseconds patience) {
  const int launcher = open_launcher();
  if (launcher < 0) return;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) == 0) {
    guard_ = run_apart(launcher, ends[0], [patience] {
      char byte = 0;
      if (::read(kRank, &byte, 1) != 0) return;  // all is well
      end_launcher(patience, std::chrono::seconds(10));
    });
    ::close(ends[0]);
    pipe_ = ends[1];
  }
  ::close(launcher);
}

LauncherGuard::~LauncherGuard() {
  if (pipe_ < 0) return;
  const char byte = 1;
  const ssize_t ignored = ::write(pipe_, &byte, 1);
  static_cast<void>(ignored);
  ::close(pipe_);
  if (guard_ > 0) ::waitpid(guard_, nullptr, 0);
}

}  // namespace fsdp::tools
