// Starts the ranks of a run and ends them together: one rank per process under mpirun or srun; N
// ranks as threads with --local-ranks N; otherwise a single rank.
//
// [Note: how a run ends in an error]
// Work that a rank does without the others (read the config, open the data) goes into agree(). If
// it fails on one rank, all ranks learn of the first failure and return from the run in order. Any
// other Error aborts the transport, which releases ranks that wait in a collective, and then the
// job. Either way one rank says why, on one line, and every rank ends with a non-zero status. After
// the set-up, an Error also prints the last collectives of all ranks that can be reached below that
// line (comm/ring_report.h). If a process disappears, the other processes on its host notice
// (rank_watch.h) and end the job. They do not wait for the launcher, which may notice later or
// never. SIGUSR2 prints the last collectives of all ranks, and the job goes on.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "core/error.h"
#include "core/io/patience.h"
#include "tools/launch/backend_choice.h"
#include "tools/launch/launch_options.h"
#include "tools/launch/launcher_environment.h"
#include "tools/launch/ring_dump.h"
#include "tools/launch/status.h"

namespace fsdp::tools {

struct RankContext {
  comm::Communicator& world;
  BackendOptions backend;    // with `threads`
  std::string backend_note;  // why the CPU computes, where that may surprise; else empty
  int threads = 1;
  int local_ranks = 1;  // ranks in this process: more than one means that they share its memory
  bool under_launcher = false;  // mpirun, srun, ...: stdout goes through it
  StartsBefore before = {};
  RingDump* rings = nullptr;  // wants to know the run directory; null: no rings
  // Reports to the job that this rank fails, before its error unwinds, because destructors may wait
  // for peers. A process ends here. Null: world.abort().
  std::function<void(const std::string& reason)> give_up = nullptr;
};

// Prints backend_note to stderr, once. For commands that measure: a reader must know what computed.
void print_backend_note(const RankContext& rank);

// An Error that every rank throws, at the same place of the program.
class AgreedError : public Error {
 public:
  explicit AgreedError(const std::string& message, int status = status::kFailed,
                       Cause cause = Cause::kPerson)
      : Error(message), status_(status), cause_(cause) {}
  int status() const { return status_; }  // of the process
  Cause cause() const { return cause_; }

 private:
  int status_;
  Cause cause_;
};

// Reports this rank's error to the job. For an error that nobody has agreed on.
void report_before_unwinding(RankContext& rank, const std::exception& error);
// Runs `work` while a session of the rank is alive. An error is reported before the session ends:
// it waits for its streams, and these may wait for ranks that wait for this one.
template <typename F>
auto with_session(RankContext& rank, F work) -> decltype(work()) {
  try {
    return work();
  } catch (const AgreedError&) {
    throw;
  } catch (const std::exception& error) {
    report_before_unwinding(rank, error);
    throw;
  }
}

// Sets environment variables that libraries read when they are first called. A variable that the
// user has set stays. launch() calls this before the first thread starts, because setenv is not
// safe while other threads run.
void set_up_environment(const LaunchOptions& options);

// What ranks run. `body` returns the status of the process.
struct RankWork {
  std::function<int(RankContext&)> body;
  // Runs before GPUs are looked for: a configuration with a mistake does not say how GPUs are used.
  // May be null.
  std::function<void(comm::Communicator& world)> first = nullptr;
};
// Runs `work` once per rank and returns the exit status of this process. What a rank threw is
// reported here and not by main(): MPI must be aborted before the stack that holds it is unwound.
// Error when the ranks cannot be started.
int launch(const LaunchOptions& options, const RankWork& work);
inline int launch(const LaunchOptions& options, const std::function<int(RankContext&)>& body) {
  return launch(options, RankWork{body});
}

// Runs `work` on every rank; when it throws an Error on any, throws AgreedError on all. `work` must
// not communicate. Collective.
void agree(comm::Communicator& world, const std::function<void()>& work);
// The same with patience: `work`, which may begin again at any place, reads or writes files.
void agree(comm::Communicator& world, const IoPatience& patience,
           const std::function<void()>& work);

// Runs what comes before the first step of a run. An AgreedError of it that is a person's mistake
// ends the process with the status of one. A run that goes on has found its files once: what the
// system refuses it is no person's mistake.
template <typename Work>
auto before_first_step(Work&& work, bool goes_on = false) {
  try {
    return work();
  } catch (const AgreedError& error) {
    const bool of_machine =
        error.cause() == Cause::kMachine || (goes_on && error.cause() == Cause::kName);
    if (of_machine || error.status() != status::kFailed) throw;
    throw AgreedError(error.what(), status::kMistake);
  }
}

// AgreedError on all ranks when their settings differ, with the first difference. `settings`:
// "name: value" each, with the same names on all ranks. `what`: a word for the message, "options".
// Collective.
void check_same_settings(comm::Communicator& world, std::string_view what,
                         const std::vector<std::string>& settings);

// Whether this is the lowest rank on its host. Collective.
bool first_rank_of_host(comm::Communicator& world);

// Error when a launcher has started several processes: this command runs in one.
void check_one_process(std::string_view command);

// Who may have made this error, also one that ranks have agreed on.
Cause cause_of(const std::exception& error);

// The message for the user, in one line.
std::string message_of(const std::exception& error);

// Prints "fsdp: message" in one process only. For errors before the ranks exist.
void report_error(const std::string& message);

}  // namespace fsdp::tools
