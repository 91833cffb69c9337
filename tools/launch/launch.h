// Starts the ranks of a run and ends them together: one per process under mpirun or srun, as
// threads of this process with --local-ranks N, one otherwise. The only place that reads the
// launcher's environment.
//
// [Note: how a run ends in an error]
// What every rank would do the same way without the others (read the config, open the data) goes
// into agree(): all ranks learn of the first failure and return from the run in order. Any other
// Error aborts the transport, which releases ranks that wait in a collective, and then the job.
// Either way one rank says why, on one line, and every rank ends with a non-zero status; after an
// Error past the set-up the rings of all ranks that can be reached are explained below that line. A
// process that is gone without a word is noticed by the others on its host (rank_watch.h): they end
// the job, also where the launcher would not, and before it does. SIGUSR1 has the rings explained
// and the job go on.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "core/error.h"
#include "tools/launch/backend_choice.h"
#include "tools/launch/ring_dump.h"

namespace fsdp::tools {

struct LaunchOptions {
  int local_ranks = 0;        // ranks as threads; 0: what the launcher says, or one
  int threads = 0;            // of each rank's kernels; 0: this process's cores / its ranks
  std::string backend;        // "auto" (also empty), "cpu", "cuda": see backend_choice.h
  bool share_gpus = false;    // several ranks may use one GPU
  std::string gpu_transport;  // between GPUs: "auto" (also empty), "nccl", "host"
  int nccl_ctas = 0;          // multiprocessors that a collective may take; 0: NCCL chooses
  std::string attention;      // on a GPU: "auto" (also empty), "cudnn", "own"
  ProductOptions products;    // of GPUs
  int64_t timeout_s = 600;    // how long a rank waits for another one
  bool shared_memory = true;  // between the processes of one host
  std::vector<std::string> same_on_all;  // for check_same_settings() before the run begins
  std::optional<int64_t> shared_memory_limit_mib;  // none: what the host has free
};

struct RankContext {
  comm::Communicator& world;
  BackendOptions backend;    // with `threads`
  std::string backend_note;  // why not a GPU, where that may surprise; else empty
  int threads = 1;
  int local_ranks = 1;  // ranks in this process: more than one means that they share its memory
  bool under_launcher = false;  // mpirun, srun, ...: stdout goes through it
  RingDump* rings = nullptr;    // to be told where the run directory is; null: nobody asks
};

// To stderr, once: what measures says on what.
void print_backend_note(const RankContext& rank);

// An Error that all ranks know of and leave the run with, in the same place.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// Settings that libraries read from the environment when they are first called. Before the first
// thread: setenv is not safe beside others. launch() calls it. What the user has set stays.
void set_up_environment(const LaunchOptions& options);

// Runs `body` once per rank and returns the exit status of this process. What a rank threw is
// reported here and not by main(): MPI must be aborted before the stack that holds it is unwound.
// Error when the ranks cannot be started.
int launch(const LaunchOptions& options, const std::function<int(RankContext&)>& body);

// Runs `work` on every rank; when it throws an Error on any, throws AgreedError on all. `work` must
// not communicate. Collective.
void agree(comm::Communicator& world, const std::function<void()>& work);

// AgreedError on all ranks when they differ, with the first difference. `settings`: "name: value"
// each, the names alike on all ranks; `what` they are: "options". Collective.
void check_same_settings(comm::Communicator& world, std::string_view what,
                         const std::vector<std::string>& settings);

// Whether this is the lowest rank on its host. Collective.
bool first_rank_of_host(comm::Communicator& world);

// Error under a launcher that started several processes: the command is for one.
void check_one_process(std::string_view command);

// What to say of it, in one line.
std::string message_of(const std::exception& error);

// Prints "fsdp: message" in the one process that should, for errors before the ranks exist.
void report_error(const std::string& message);

// ---- pure parts, for tests ----

// What the launcher's environment says.
struct LauncherEnvironment {
  bool started = false;  // by mpirun, srun, ...
  int rank = 0;
  int size = 0;        // 0: it does not say
  bool bound = false;  // it bound this process to cores
};
LauncherEnvironment launcher_environment(
    const std::function<const char*(const char* name)>& getenv);

struct CoreSharing {
  int usable = 1;  // cores this process may use
  int of_machine = 1;
  int ranks = 1;  // that use the same cores
  int ranks_on_host = 1;
  bool bound_by_launcher = false;
};
struct ThreadChoice {
  int threads = 1;      // per rank
  std::string warning;  // "" when all is well
};
ThreadChoice choose_threads(int requested,  // 0: the cores are shared out
                            const CoreSharing& cores);

}  // namespace fsdp::tools
