// One poll over a signalfd, a pidfd per process and an eventfd that ends it: no handler, no global.
#include "tools/launch/rank_watch.h"

#include <csignal>
#include <cstdint>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fsdp::tools {
namespace {

// Who goes with the whole job is not missed: the launcher kills the ranks one by one.
constexpr int kGraceMilliseconds = 200;

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  return set;
}

}  // namespace

void send_request(pid_t process, WatchRequest request) {
  sigval value = {};
  value.sival_int = static_cast<int>(request);
  ::sigqueue(process, SIGUSR2, value);
}

void RankWatch::block_signal() {
  const sigset_t set = watched_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

RankWatch::RankWatch(const std::vector<pid_t>& processes, Actions actions)
    : actions_(std::move(actions)) {
  const sigset_t set = watched_signals();
  stop_ = ::eventfd(0, EFD_CLOEXEC);
  signal_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  for (const pid_t process : processes) {
    processes_.push_back(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  }
  thread_ = std::thread([this] { watch(); });
}

RankWatch::~RankWatch() {
  const uint64_t one = 1;
  while (::write(stop_, &one, sizeof one) < 0) {
  }
  thread_.join();
  for (const int descriptor : processes_) {
    if (descriptor >= 0) ::close(descriptor);
  }
  ::close(signal_);
  ::close(stop_);
}

bool RankWatch::stopped_within(int milliseconds) const {
  pollfd stop = {stop_, POLLIN, 0};
  return ::poll(&stop, 1, milliseconds) > 0;
}

void RankWatch::read_signal() {
  signalfd_siginfo info = {};
  while (::read(signal_, &info, sizeof info) == sizeof info) {
    const bool from_peer = info.ssi_code == SI_QUEUE;
    actions_.asked(from_peer ? static_cast<WatchRequest>(info.ssi_int) : WatchRequest::kPerson);
  }
}

void RankWatch::watch() {
  std::vector<pollfd> polled = {{stop_, POLLIN, 0}, {signal_, POLLIN, 0}};
  for (const int process : processes_) polled.push_back({process, POLLIN, 0});
  for (;;) {
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;  // interrupted
    if (polled[0].revents != 0) return;
    if (polled[1].revents != 0) read_signal();
    for (size_t i = 2; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      polled[i].fd = -1;  // poll leaves it out from now on
      if (stopped_within(kGraceMilliseconds)) return;
      actions_.gone(i - 2);
    }
  }
}

}  // namespace fsdp::tools
