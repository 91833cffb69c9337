// By fork: a child has what its parent computed. Contract: tests/support/child_process.h.
#include "tests/support/child_process.h"

#include <exception>

#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"

namespace {

constexpr int kFalse = 0, kTrue = 1, kThrew = 2, kReported = 66;
constexpr unsigned kSeconds = 300;
bool asks = false;  // this process is such a child

}  // namespace

// AddressSanitizer calls it before it prints a report, which would take long.
extern "C" void __asan_on_error();
extern "C" void __asan_on_error() {
  if (asks) ::_exit(kReported);
}

namespace fsdp::test {

bool true_or_reported(const std::function<bool()>& question) {
  const pid_t child = ::fork();
  FSDP_CHECK(child >= 0, "fork: cannot make a process");
  if (child == 0) {
    asks = true;
    ::alarm(kSeconds);
    int status = kThrew;
    try {
      status = question() ? kTrue : kFalse;
    } catch (const std::exception&) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  FSDP_CHECK(code == kFalse || code == kTrue || code == kReported,
             "a child ended with status {} instead of an answer", status);
  return code != kFalse;
}

}  // namespace fsdp::test
