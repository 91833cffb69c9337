// The one mutable global of the program: a signal handler can write nothing else. Handlers make
// system calls only.
#include "tools/launch/interrupt.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string_view>
#include <vector>

#include <fcntl.h>
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

namespace {

void end_when_over(const std::stop_token& ended, std::chrono::seconds limit, int rank) {
  constexpr std::chrono::milliseconds kLook(50), kRankZeroFirst(300);
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  const auto ends_within = [&](std::chrono::milliseconds time) {
    wake.wait_for(lock, ended, time, [] { return false; });
    return ended.stop_requested();
  };
  while (received_interrupt() == 0) {
    if (ends_within(kLook)) return;
  }
  if (ends_within(limit)) return;
  if (rank > 0 && ends_within(kRankZeroFirst)) return;
  std::fprintf(
      stderr, "fsdp: the run did not end within %ld s of %s (runtime.grace_s): ended at once\n",
      static_cast<long>(limit.count()), std::string(name_of_signal(received_interrupt())).c_str());
  ::_exit(status_after(received_interrupt()));
}

}  // namespace

GraceLimit::GraceLimit(std::chrono::seconds limit, int rank) {
  if (limit.count() == 0) return;
  thread_ = std::jthread(
      [limit, rank](const std::stop_token& ended) { end_when_over(ended, limit, rank); });
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

namespace {

constexpr size_t kLine = 4096 + 128;  // a path and what stands before it

unsigned long hex_number(const char*& at) {
  unsigned long value = 0;
  for (;; ++at) {
    if (*at >= '0' && *at <= '9') {
      value = value * 16 + static_cast<unsigned long>(*at - '0');
    } else if (*at >= 'a' && *at <= 'f') {
      value = value * 16 + static_cast<unsigned long>(*at - 'a' + 10);
    } else {
      return value;
    }
  }
}

// "7f00-7f80 r--s 00000000 08:01 42   /path": the path, if the address lies in it.
const char* path_in(const char* line, unsigned long address) {
  const unsigned long begin = hex_number(line);
  if (*line != '-') return nullptr;
  const unsigned long end = hex_number(++line);
  if (address < begin || address >= end) return nullptr;
  return std::strchr(line, '/');
}

// Takes the text piece by piece.
class MapsReader {
 public:
  explicit MapsReader(unsigned long address) : address_(address) {}
  // The path once its line is whole; null: not yet.
  const char* take(const char* text, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      if (text[i] != '\n') {
        if (length_ < kLine - 1) line_[length_++] = text[i];
        continue;
      }
      line_[length_] = 0;
      length_ = 0;
      if (const char* path = path_in(line_, address_)) return path;
    }
    return nullptr;
  }

 private:
  unsigned long address_;
  size_t length_ = 0;
  char line_[kLine] = {};
};

void say(const char* text) {
  const ssize_t ignored = ::write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(ignored);
}

extern "C" void name_bus_error(int signal, siginfo_t* info, void*) {
  MapsReader reader(reinterpret_cast<unsigned long>(info->si_addr));
  const char* path = nullptr;
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  char text[1024];
  for (ssize_t n = 0; !path && maps >= 0 && (n = ::read(maps, text, sizeof text)) > 0;) {
    path = reader.take(text, static_cast<size_t>(n));
  }
  if (!path) {  // no file's: what it would have been without us
    ::signal(signal, SIG_DFL);
    ::raise(signal);
    return;
  }
  say("fsdp: ");
  say(path);
  say(": cannot be read any more: the file was cut while it was in use, or its disk failed\n");
  ::_exit(1);
}

}  // namespace

void name_bus_errors() {
  struct sigaction action = {};
  action.sa_sigaction = name_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

std::string mapped_file(const std::string& maps, unsigned long address) {
  MapsReader reader(address);
  constexpr size_t kPiece = 7;  // smaller than a line
  for (size_t begin = 0; begin < maps.size(); begin += kPiece) {
    const std::string piece = maps.substr(begin, kPiece);
    if (const char* path = reader.take(piece.data(), piece.size())) return path;
  }
  return "";
}

}  // namespace fsdp::tools
