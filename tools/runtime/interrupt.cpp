// The one mutable global of the program: a signal handler can write nothing else.
#include "tools/runtime/interrupt.h"

#include <algorithm>
#include <csignal>

namespace fsdp::tools {
namespace {

volatile std::sig_atomic_t received = 0;

extern "C" void note_signal(int signal) { received = signal; }

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);  // the second one kills
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

int received_interrupt() { return received; }

int StopVote::taken() {
  if (group_->size() == 1) return received_interrupt();
  int signal = 0;
  for (const std::string& vote : group_->exchange(std::to_string(received_interrupt()))) {
    signal = std::max(signal, std::stoi(vote));
  }
  return signal;
}

}  // namespace fsdp::tools
