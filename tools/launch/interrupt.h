// Ctrl-C, SIGTERM and SIGHUP (a terminal that is closed): the first one asks the run to stop at the
// end of a step, the second ends the process at once. All ranks must leave their loop at the same
// step, so they vote.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace fsdp::tools {

// Installs the handlers; before, a signal ends the process at once. Call it when there is a step to
// stop after.
void catch_interrupts();
int received_interrupt();  // SIGINT, SIGTERM, SIGHUP, or 0
// Whoever read the output may leave, as in `| head`: from now on printing fails, and nothing else.
void ignore_broken_pipes();

class StopVote {
 public:
  // Collective. Its own group, so that no collective of a running step comes between.
  explicit StopVote(comm::Communicator& world) : group_(world.duplicate("stop")) {}
  // The signal that any rank received, or 0; the same answer on all ranks. Collective.
  int taken();

 private:
  std::unique_ptr<comm::Communicator> group_;
};

}  // namespace fsdp::tools
