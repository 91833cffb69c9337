// The one mutable global of the program: a signal handler can write nothing else.
#include "tools/launch/interrupt.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "comm/exchange.h"

namespace fsdp::tools {
namespace {

std::atomic<int> received = 0;       // two threads may be given a signal each
std::atomic<bool> stopping = false;  // by another one than SIGUSR1
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not wait");

extern "C" void note_signal(int signal) {
  int none = 0;
  received.compare_exchange_strong(none, signal);
  // A batch system sends SIGUSR1 to every process, once or more, and SIGTERM some time later.
  if (signal == SIGUSR1 || !stopping.exchange(true)) return;
  constexpr std::string_view kLine = "\nfsdp: a second signal: ended at once\n";
  const ssize_t ignored = ::write(STDERR_FILENO, kLine.data(), kLine.size());
  static_cast<void>(ignored);
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // comes when this handler returns
}

extern "C" void requeue_at_once(int) { ::_exit(kRequeueStatus); }

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

int status_after(int signal) { return signal == SIGUSR1 ? kRequeueStatus : 128 + signal; }

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

void ignore_failing_writes() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
}

int received_interrupt() { return received; }

int agreed_signal(const std::vector<int>& received_by_rank) {
  const auto begin = received_by_rank.begin(), end = received_by_rank.end();
  return std::find(begin, end, SIGUSR1) != end ? SIGUSR1 : *std::max_element(begin, end);
}

int StopVote::taken() {
  if (group_->size() == 1) return received_interrupt();
  return agreed_signal(comm::exchange_values(*group_, received_interrupt()));
}

}  // namespace fsdp::tools
