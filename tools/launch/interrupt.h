// The signals of a process. Ctrl-C, SIGTERM, SIGHUP (a closed terminal) and SIGALRM: the first
// signal asks the run to stop at the end of a micro-step, the second one ends the process at once.
// Signals that come together are one: GNU timeout sends one to the process and one to its group.
// SIGUSR1 asks it to stop so that it can be started again: what a batch system sends before the
// time of a job is over. All ranks must leave their loop at the same step, so they vote. SIGBUS: a
// mapped file (a cache of tokens, weights) that is cut while it is read, or whose disk fails. Files
// that are read by calls have an Error for it (core/io/file.h).
#pragma once

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/communicator.h"

namespace fsdp::tools {

// Installs the handlers. Until then a signal ends the process at once, so call this function when
// the first step is about to begin.
void catch_interrupts();
int received_interrupt();  // one of these signals, or 0
// Error once one has come. For work that is worth nothing before its end.
void stop_where_interrupted();

// Until catch_interrupts() there is nothing to keep: SIGUSR1 ends the process with kStartAgain.
void requeue_until_training();
// While this object lives, signals that end a run have to wait; threads that are started meanwhile
// never get such a signal. Open MPI's launcher may hang when a process dies within MPI_Init.
class SignalsWait {
 public:
  SignalsWait();
  ~SignalsWait();  // signals that came take effect
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

 private:
  sigset_t before_;
};
int waiting_signal();                         // a signal that has to wait, or 0
int status_after(int signal);                 // of the process
std::string_view name_of_signal(int signal);  // "Ctrl-C"
// Where files are limited in size (ulimit -f), or the reader of the output leaves, as in `| head`:
// after these calls only the write fails, and its error names the file. Without them a signal would
// end the process.
void name_size_limits();
void outlive_reader();

// What ranks that received these signals (0: none) do together: SIGUSR1 wins, since what ends a job
// sends SIGTERM behind it.
int agreed_signal(const std::vector<int>& received_by_rank);

// Ends the process when a signal came that long ago: what a batch system would do then, but with a
// word about it. The checkpoint before stays as it was.
class GraceLimit {
 public:
  GraceLimit(std::chrono::seconds limit, int rank);  // 0: none

 private:
  std::jthread thread_;  // ends with this
};

class StopVote {
 public:
  // Collective. The vote has a group of its own, so that it does not mix with the collectives of a
  // running step.
  explicit StopVote(comm::Communicator& world) : group_(world.duplicate("stop")) {}
  // The signal that any rank received, or 0, and what rank 0 says by its clock; the same answer on
  // all ranks. Collective.
  struct Answer {
    int signal = 0;
    bool due = false;
  };
  Answer taken(bool due = false);

 private:
  std::unique_ptr<comm::Communicator> group_;
};

// From now on such a signal prints "fsdp: FILE: ..." and ends the process with status 1.
void name_bus_errors();

// ---- for tests ----
// The path of the file that is mapped at the address, from the text of /proc/self/maps; "": none.
std::string mapped_file(const std::string& maps, unsigned long address);

}  // namespace fsdp::tools
