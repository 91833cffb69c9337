// Ctrl-C, SIGTERM and SIGHUP (a closed terminal). The first signal asks the run to stop at the end
// of a step, the second one ends the process at once. All ranks must leave their loop at the same
// step, so they vote.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace fsdp::tools {

// Installs the handlers. Until then a signal ends the process at once, so call this function when
// the first step is about to begin.
void catch_interrupts();
int received_interrupt();  // SIGINT, SIGTERM, SIGHUP, or 0
// The reader of the output may leave, as in `| head`. After this call only the printing fails then;
// without it the signal SIGPIPE would end the process.
void ignore_broken_pipes();

class StopVote {
 public:
  // Collective. The vote has a group of its own, so that it does not mix with the collectives of a
  // running step.
  explicit StopVote(comm::Communicator& world) : group_(world.duplicate("stop")) {}
  // The signal that any rank received, or 0; the same answer on all ranks. Collective.
  int taken();

 private:
  std::unique_ptr<comm::Communicator> group_;
};

}  // namespace fsdp::tools
