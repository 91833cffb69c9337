// Calls that do not wait, and pauses in between that look for a signal.
#include "tools/launch/run_output.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/launch/interrupt.h"

namespace fsdp::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kForTheRest(1000);
constexpr int kLookForSignal = 50;  // ms

// A descriptor of its own: O_NONBLOCK of stdout itself would be that of all who share it, such as
// the shell.
int without_waiting(int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0) return -1;
  if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return -1;
  return ::open(fmt::format("/proc/self/fd/{}", file).c_str(),
                O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

RunOutput::RunOutput(std::FILE* out) : out_(out), descriptor_(without_waiting(::fileno(out))) {}

RunOutput::~RunOutput() {
  write_pending(kForTheRest);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RunOutput::put(std::string_view text) {
  const std::lock_guard lock(mutex_);
  pending_ += text;
  write_pending(milliseconds(0));
}

void RunOutput::write_pending(milliseconds limit_after_signal) {
  Clock::time_point end = Clock::time_point::max();
  while (!pending_.empty() && descriptor_ >= 0) {
    const ssize_t n = ::write(descriptor_, pending_.data(), pending_.size());
    if (n > 0) pending_.erase(0, static_cast<size_t>(n));
    if (n >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) break;
    if (received_interrupt() != 0) {
      end = std::min(end, Clock::now() + limit_after_signal);
      if (Clock::now() >= end) return;
    }
    pollfd room = {.fd = descriptor_, .events = POLLOUT, .revents = 0};
    ::poll(&room, 1, kLookForSignal);
  }
  std::fwrite(pending_.data(), 1, pending_.size(), out_);  // a file, or the error is known then
  std::fflush(out_);
  pending_.clear();
}

}  // namespace fsdp::tools
