// One epoll over an eventfd that ends it, a signalfd, a pidfd per process, and what others add: no
// handler, no global.
#include "tools/launch/rank_watch.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <system_error>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/error.h"

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

RankWatch::RankWatch() : stop_(::eventfd(0, EFD_CLOEXEC)), poll_(::epoll_create1(EPOLL_CLOEXEC)) {
  FSDP_CHECK(stop_ >= 0 && poll_ >= 0, "[watch] no descriptor for it: {}", std::strerror(errno));
  epoll_event event = {.events = EPOLLIN, .data = {.fd = stop_}};
  ::epoll_ctl(poll_, EPOLL_CTL_ADD, stop_, &event);
  thread_ = std::thread([this] { watch(); });
}

void RankWatch::stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  while (::write(stop_, &one, sizeof one) < 0) {
  }
  thread_.join();
  apart_.clear();  // waits
  for (const auto& [descriptor, ready] : ready_) ::close(descriptor);
  ready_.clear();
  ::close(poll_);
  ::close(stop_);
}

// ---------------------------------------------------------------------------- What is watched

void RankWatch::add(int descriptor, Action ready, bool once) {
  if (descriptor < 0) return;
  const std::lock_guard lock(mutex_);
  ready_[descriptor] = std::move(ready);
  epoll_event event = {.events = once ? EPOLLIN | EPOLLONESHOT : EPOLLIN,
                       .data = {.fd = descriptor}};
  ::epoll_ctl(poll_, EPOLL_CTL_ADD, descriptor, &event);
}

void RankWatch::remove(int descriptor) {
  const std::lock_guard lock(mutex_);
  if (ready_.erase(descriptor) > 0) ::close(descriptor);  // and epoll forgets it
}

int RankWatch::every(std::chrono::nanoseconds period, Action action) {
  constexpr long kSecond = 1'000'000'000;
  const int timer = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  const timespec time = {.tv_sec = period.count() / kSecond, .tv_nsec = period.count() % kSecond};
  const itimerspec times = {.it_interval = time, .it_value = time};
  ::timerfd_settime(timer, 0, &times, nullptr);
  add(timer, [timer, action = std::move(action)] {
    uint64_t times_over = 0;
    if (::read(timer, &times_over, sizeof times_over) > 0) action();
  });
  return timer;
}

void RankWatch::on_request(std::function<void(WatchRequest)> asked) {
  const sigset_t set = watched_signals();
  const int signal = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  add(signal, [this, signal, asked = std::move(asked)] {
    signalfd_siginfo info = {};
    while (::read(signal, &info, sizeof info) == sizeof info) {
      const bool from_peer = info.ssi_code == SI_QUEUE;
      const auto request =
          from_peer ? static_cast<WatchRequest>(info.ssi_int) : WatchRequest::kPerson;
      apart([this, asked, request] {
        const std::lock_guard one(asking_);
        asked(request);
      });
    }
  });
}

void RankWatch::on_end(pid_t process, Action gone) {
  const auto ended = [this, gone = std::move(gone)] {
    apart([this, gone] {
      if (!stopped_within(kGraceMilliseconds)) gone();
    });
  };
  add(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)), ended, true);
}

// ---------------------------------------------------------------------------- The thread

bool RankWatch::stopped_within(int milliseconds) const {
  pollfd stop = {stop_, POLLIN, 0};
  return ::poll(&stop, 1, milliseconds) > 0;
}

void RankWatch::apart(Action work) {
  std::erase_if(apart_, [](const std::future<void>& each) {
    return each.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
  try {
    apart_.reserve(apart_.size() + 1);  // once it runs nothing may fail
    // An error in it ends the process, as on any thread.
    apart_.push_back(std::async(std::launch::async, [work]() noexcept { work(); }));
  } catch (const std::exception&) {  // no memory, or no thread
    work();
  }
}

void RankWatch::watch() {
  for (;;) {
    epoll_event event = {};
    if (::epoll_wait(poll_, &event, 1, -1) < 1) continue;  // interrupted
    if (event.data.fd == stop_) return;
    const std::lock_guard lock(mutex_);
    const auto found = ready_.find(event.data.fd);
    if (found == ready_.end()) continue;  // removed a moment ago
    try {
      found->second();
    } catch (const std::exception&) {
      // No memory: a beat is left out. Who lacks it in earnest says so, on a thread of its own.
    }
  }
}

}  // namespace fsdp::tools
