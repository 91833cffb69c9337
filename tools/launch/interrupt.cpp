// The one mutable global of the program: a signal handler can write nothing else.
#include "tools/launch/interrupt.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "comm/exchange.h"
#include "core/error.h"
#include "tools/launch/status.h"

namespace fsdp::tools {
namespace {

std::atomic<int> received = 0;         // two threads may be given a signal each
std::atomic<int64_t> stopping_ns = 0;  // when the first one but SIGUSR1 came; 0: none did
static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler may not wait");

constexpr int kEnding[] = {SIGUSR1, SIGINT, SIGTERM, SIGALRM, SIGHUP};
constexpr int64_t kTogether = 500'000'000;  // ns

int64_t now_ns() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

extern "C" void note_signal(int signal) {
  int none = 0;
  received.compare_exchange_strong(none, signal);
  // A batch system sends SIGUSR1 to every process, once or more, and SIGTERM some time later.
  if (signal == SIGUSR1) return;
  const int64_t now = now_ns();
  int64_t first = 0;
  if (stopping_ns.compare_exchange_strong(first, now) || now - first < kTogether) return;
  constexpr std::string_view kLine = "\nfsdp: a second signal: ended at once\n";
  const ssize_t ignored = ::write(STDERR_FILENO, kLine.data(), kLine.size());
  static_cast<void>(ignored);
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // comes when this handler returns
}

extern "C" void requeue_at_once(int) { ::_exit(status::kStartAgain); }

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGUSR1})
    ::sigaction(signal, &action, nullptr);
  struct sigaction before = {};
  ::sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);  // else: under nohup
}

void requeue_until_training() {
  struct sigaction action = {};
  action.sa_handler = requeue_at_once;
  ::sigaction(SIGUSR1, &action, nullptr);
}

SignalsWait::SignalsWait() {
  sigset_t all;
  sigemptyset(&all);
  for (const int signal : kEnding) sigaddset(&all, signal);
  ::pthread_sigmask(SIG_BLOCK, &all, &before_);
}
SignalsWait::~SignalsWait() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int waiting_signal() {
  sigset_t waiting;
  ::sigpending(&waiting);
  for (const int signal : kEnding) {
    if (sigismember(&waiting, signal) == 1) return signal;
  }
  return 0;
}

int status_after(int signal) { return signal == SIGUSR1 ? status::kStartAgain : 128 + signal; }

std::string_view name_of_signal(int signal) {
  switch (signal) {
    case SIGINT:
      return "Ctrl-C";
    case SIGHUP:
      return "SIGHUP";
    case SIGALRM:
      return "SIGALRM";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return "SIGTERM";
  }
}

void name_size_limits() { ::signal(SIGXFSZ, SIG_IGN); }
void outlive_reader() { ::signal(SIGPIPE, SIG_IGN); }

int received_interrupt() { return received; }

void stop_where_interrupted() {
  if (received != 0) fail("stopped by {}", name_of_signal(received));
}

int agreed_signal(const std::vector<int>& received_by_rank) {
  const auto begin = received_by_rank.begin(), end = received_by_rank.end();
  return std::find(begin, end, SIGUSR1) != end ? SIGUSR1 : *std::max_element(begin, end);
}

GraceLimit::GraceLimit(std::chrono::seconds limit, int rank) {
  if (limit.count() > 0) thread_ = std::thread([this, limit, rank] { watch(limit, rank); });
}

GraceLimit::~GraceLimit() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void GraceLimit::watch(std::chrono::seconds limit, int rank) {
  constexpr std::chrono::milliseconds kLook(50), kRankZeroFirst(300);
  std::unique_lock lock(mutex_);
  const auto ended = [&] { return ended_; };
  while (received_interrupt() == 0) {
    if (wake_.wait_for(lock, kLook, ended)) return;
  }
  if (wake_.wait_for(lock, limit, ended)) return;
  if (rank > 0 && wake_.wait_for(lock, kRankZeroFirst, ended)) return;
  std::fprintf(
      stderr, "fsdp: not at the end of the run %ld s after %s (runtime.grace_s): ended at once\n",
      static_cast<long>(limit.count()), std::string(name_of_signal(received_interrupt())).c_str());
  ::_exit(status_after(received_interrupt()));
}

StopVote::Answer StopVote::taken(bool due) {
  if (group_->size() == 1) return {received_interrupt(), due};
  struct Mine {
    int signal, due;
  };
  std::vector<int> signals;
  const auto all = comm::exchange_values(*group_, Mine{received_interrupt(), due ? 1 : 0});
  for (const Mine& of_rank : all) signals.push_back(of_rank.signal);
  return {agreed_signal(signals), all.front().due != 0};
}

}  // namespace fsdp::tools
