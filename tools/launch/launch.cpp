// Choice of transport and threads, and the end of a run: see the note in the header.
#include "tools/launch/launch.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

#include <fmt/ranges.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "comm/agreement.h"
#include "comm/exchange.h"
#include "comm/local_transport.h"
#include "comm/mpi_transport.h"
#include "core/io/patience.h"
#include "tools/launch/batch_job.h"
#include "tools/launch/heartbeat.h"
#include "tools/launch/interrupt.h"
#include "tools/launch/job_end.h"
#include "tools/launch/network_cards.h"
#include "tools/launch/openmp_variables.h"
#include "tools/launch/thread_choice.h"

namespace fsdp::tools {
namespace {

// A mistake is often seen by all ranks at once. Those behind rank 0 hold their tongue for a while:
// by then the launcher has ended them, unless they are alone with it.
constexpr std::chrono::milliseconds kUntilNoticed(4000);  // after an exit that MPI knows nothing of
constexpr std::chrono::milliseconds kStartTurn(500);      // times the rank
constexpr int kMostStartTurns = 10;

const char* getenv(const char* name) { return std::getenv(name); }

LauncherEnvironment environment() { return launcher_environment(getenv); }

// ---------------------------------------------------------------------------- Ranks

struct RankPlace {
  int local_ranks = 1;                  // in this process
  int first_of_host = 0;                // the lowest rank on this machine
  std::vector<NetworkCard> cards = {};  // of launch.interface
};

// `ranks`: of each its host, and other things.
void note_idle_hosts(const std::vector<std::vector<std::string>>& ranks) {
  std::vector<std::string> hosts;
  for (const std::vector<std::string>& rank : ranks) hosts.push_back(rank[0]);
  const std::string note = idle_hosts_note(hosts, getenv);
  if (!note.empty()) print_line("note: " + note);
}

void note_network(const std::vector<std::vector<std::string>>& ranks,
                  const std::vector<NetworkCard>& chosen) {
  const bool one_host = std::all_of(ranks.begin(), ranks.end(),
                                    [&](const auto& rank) { return rank[0] == ranks[0][0]; });
  if (one_host) return;
  print_line("note: " + network_note(chosen, network_cards(), getenv));
}

// What ranks share where it is the same: the host, its cores, a control group's CPU time.
std::vector<std::string> place_of_rank() {
  return {host_name(), fmt::format("{}", fmt::join(own_cores(), ",")), cpu_quota().source};
}

CoreSharing core_sharing(const std::vector<std::vector<std::string>>& places, int rank) {
  const std::vector<std::string>& mine = places[static_cast<size_t>(rank)];
  const auto ranks_like_this = [&](size_t sameness) {
    return static_cast<int>(std::count_if(places.begin(), places.end(), [&](const auto& other) {
      return other[0] == mine[0] && other[sameness] == mine[sameness];
    }));
  };
  return {.usable = static_cast<int>(own_cores().size()),
          .of_machine = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)),
          .ranks = ranks_like_this(1),
          .ranks_on_host = ranks_like_this(0),
          .bound_by_launcher = environment().bound,
          .quota = cpu_quota(),
          .ranks_of_quota = ranks_like_this(2)};
}

// Collective.
int run_rank(comm::Communicator& world, const LaunchOptions& options, const RankPlace& place,
             RingDump& rings, const RankWork& work,
             const std::function<void(const std::string& reason)>& give_up) {
  rings.add_rank(world.rank(), world.rings());
  world.rings()->set_phase({.whole = "the set-up", .innermost = {}});
  check_same_settings(world, "options", options.same_on_all);
  if (work.first) work.first(world);
  const std::vector<std::vector<std::string>> all = comm::exchange_texts(world, place_of_rank());
  const CoreSharing sharing = core_sharing(all, world.rank());
  const std::vector<RankGpus> gpus = gpus_of_ranks(world, place.first_of_host, options.backend);
  ThreadChoice choice;
  GpuChoice gpu;
  before_first_step([&] {
    agree(world, [&] {
      choice = choose_threads(static_cast<int>(options.threads), sharing,
                              openmp_variable("OMP_NUM_THREADS"));
      gpu = choose_gpu(gpus, world.rank(), options.backend, options.share_gpus);
      check_code(gpu, options.backend);
      choose_products(options, gpu);
      if (gpu.cuda) gpu.cuda->note = [](const std::string& text) { print_line("note: " + text); };
    });
  });
  if (world.rank() == 0 && !choice.warning.empty()) print_line("warning: " + choice.warning);
  if (world.rank() == 0 && !choice.note.empty()) print_line("note: " + choice.note);
  if (world.rank() == 0) note_idle_hosts(all);
  if (world.rank() == 0) note_network(all, place.cards);
  const TransportChoice transport = before_first_step([&] {
    try {
      choose_attention(world, options.attention, gpu);
      const TransportChoice chosen = choose_transport(world, options.gpu_transport, gpu);
      divide_multiprocessors(options.nccl_ctas, chosen, gpu);
      return chosen;
    } catch (const Error& error) {  // the same on every rank
      throw AgreedError(error.what(), status::kFailed, tools::cause_of(error));
    }
  });
  RankContext context = {.world = world,
                         .backend = {.cpu = {.threads = choice.threads},
                                     .cuda = gpu.cuda,
                                     .only_cuda = options.backend == "cuda"},
                         .backend_note = gpu.note.empty() ? transport.note : gpu.note,
                         .threads = choice.threads,
                         .local_ranks = place.local_ranks,
                         .under_launcher = environment().started,
                         .before = starts_before(),
                         .rings = &rings,
                         .give_up = give_up};
  if (transport.nccl) {
    context.backend.nccl = comm::NcclOptions{.timeout = std::chrono::seconds(options.timeout_s),
                                             .max_ctas = static_cast<int>(options.nccl_ctas),
                                             .failed = give_up};
    if (place.local_ranks > 1) {
      context.backend.nccl->given_up = [&world] { return world.aborted(); };
    }
  }
  return work.body(context);
}

// ---------------------------------------------------------------------------- Rings

void print_rings_of_error(const RingDump& rings) {
  if (rings.worth_explaining()) print_rings(rings);
}

// ---------------------------------------------------------------------------- Transports

// Empty where launch.interface is: MPI and NCCL choose.
std::vector<NetworkCard> set_up_network(const std::string& interface, int rank) {
  if (interface.empty()) return {};
  const std::vector<NetworkCard> all = network_cards();
  const std::string where = fmt::format("rank {} on {}", rank, host_name());
  std::vector<NetworkCard> chosen = chosen_cards(interface, all, where);
  for (const std::string& note : set_network(chosen, all)) {
    if (rank == 0) print_line("note: " + note);
  }
  return chosen;
}

int launch_threads(const LaunchOptions& options, int ranks, const RankWork& work) {
  std::mutex mutex;
  int status = 0;
  std::string agreed;
  RingDump rings;
  RankWatch watch;
  watch.on_request([&](WatchRequest) { print_rings(rings); });
  const auto run = [&](comm::Communicator& world) {
    int mine = 1;
    std::string message;
    try {
      mine = run_rank(world, options, {.local_ranks = ranks}, rings, work,
                      [&](const std::string& reason) { world.abort(reason); });
    } catch (const AgreedError& error) {
      message = error.what();
      mine = error.status();
    }
    const std::lock_guard lock(mutex);
    if (status == 0) status = mine;
    if (agreed.empty()) agreed = message;
  };
  try {
    comm::run_local_ranks(ranks, run,
                          {.timeout = std::chrono::seconds(options.timeout_s),
                           .storage_timeout = std::chrono::seconds(options.storage_timeout_s)});
  } catch (const Error& error) {  // "rank 1: ..."
    const std::string message = error.what();
    const std::string_view only_rank = "rank 0: ";
    print_line(ranks == 1 && message.starts_with(only_rank) ? message.substr(only_rank.size())
                                                            : message);
    rings.leave_end(status::kFailed, message);
    if (ranks > 1) print_rings_of_error(rings);
    return 1;
  }
  if (!agreed.empty()) {
    print_line(agreed);
    rings.leave_end(status, agreed);
  }
  return status;
}

// By what its launcher says; false where it does not say.
bool on_one_host(const LauncherEnvironment& launcher) {
  const auto number = [](const char* name) {
    const char* const text = std::getenv(name);
    return text ? std::atoi(text) : 0;
  };
  return (launcher.size > 0 && number("OMPI_COMM_WORLD_LOCAL_SIZE") == launcher.size) ||
         number("SLURM_STEP_NUM_NODES") == 1;
}

// Nullopt: the host lacks them, which is said.
std::optional<std::vector<NetworkCard>> cards_of_process(const std::string& interface,
                                                         const LauncherEnvironment& launcher) {
  try {
    return set_up_network(interface, launcher.rank);
  } catch (const Error& error) {
    if (!on_one_host(launcher)) {
      report_error(error.what());
      return {};
    }
    const std::string note =
        fmt::format("note: {}; the ranks are on one host, which needs none", error.what());
    if (launcher.rank == 0) print_line(note);
    return std::vector<NetworkCard>();
  }
}

int launch_process(const LaunchOptions& options, const LauncherEnvironment& launcher,
                   const RankWork& work) {
  comm::HostMemoryOptions memory = {
      .shared_memory = options.shared_memory,
      .timeout = std::chrono::seconds(options.timeout_s),
      .storage_timeout = std::chrono::seconds(options.storage_timeout_s)};
  if (options.shared_memory_limit_mib) {
    memory.limit_bytes = static_cast<size_t>(*options.shared_memory_limit_mib) << 20;
  }
  const auto chosen = cards_of_process(options.interface, launcher);
  if (!chosen) return status::kMistake;
  const std::vector<NetworkCard>& cards = *chosen;
  std::optional<LauncherGuard> guard(std::in_place);  // a copy of this process without threads
  std::optional<SignalsWait> signals(std::in_place);
  RankWatch watch;  // its thread never gets these signals
  // MPI is not there yet to end the job: the launcher ends it for a rank that ends like this.
  std::optional<StartWatch> start(
      std::in_place, watch,
      StartWatch::Limits{std::chrono::seconds(options.heartbeat_s), memory.timeout},
      [rank = launcher.rank](const std::string& reason) {
        std::this_thread::sleep_for(kStartTurn * std::min(rank, kMostStartTurns));
        print_line(reason);
        ::_exit(1);
      });
  comm::MpiRuntime runtime(memory);
  signals.reset();
  comm::Communicator& world = runtime.world();
  RingDump rings;
  std::optional<JobEnd> job_end;
  try {
    FSDP_CHECK(
        launcher.size == world.size() || (launcher.size == 0 && launcher.rank < world.size()), "{}",
        unconnected_refusal(getenv, launcher.size, world.size(), own_command()));
    const std::vector<Peer> peers = find_peers(world);
    rings.set_peers(peers);
    job_end.emplace(runtime, watch, rings, peers, std::chrono::seconds(options.heartbeat_s),
                    has_ipv4(cards) ? cards : reaching(network_cards()));
    start.reset();
    guard.reset();
    const int status =
        run_rank(world, options, {.first_of_host = runtime.first_of_host(), .cards = cards}, rings,
                 work, [&](const std::string& reason) { job_end->fail(reason); });
    job_end->finish();
    return status;
  } catch (const AgreedError& error) {
    if (world.rank() == 0) {
      print_line(error.what());
      rings.leave_end(error.status(), error.what());
    }
    return error.status();
  } catch (const std::exception& error) {
    if (!job_end) {
      job_end.emplace(runtime, watch, rings, std::vector<Peer>(), std::chrono::seconds(0), cards);
    }
    job_end->fail(message_of(error));
  }
}

}  // namespace

void report_before_unwinding(RankContext& rank, const std::exception& error) {
  if (rank.world.size() == 1) return;
  rank.give_up ? rank.give_up(message_of(error)) : void(rank.world.abort(error.what()));
}

void print_backend_note(const RankContext& rank) {
  if (rank.world.rank() == 0 && !rank.backend_note.empty()) {
    print_line("note: " + rank.backend_note);
  }
}

namespace {

// Where addresses are limited (ulimit -v), reservations count like memory in use: malloc reserves
// 64 MiB for every thread that calls it, and a thread's stack has 8 MiB. Neither is needed.
void reserve_little() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  constexpr size_t kStack = size_t{1} << 20;
  ::mallopt(M_ARENA_MAX, 1);
  pthread_attr_t attributes;
  if (::pthread_getattr_default_np(&attributes) != 0) return;
  size_t stack = 0;
  ::pthread_attr_getstacksize(&attributes, &stack);
  if (stack > kStack) {
    ::pthread_attr_setstacksize(&attributes, kStack);
    ::pthread_setattr_default_np(&attributes);
  }
  ::pthread_attr_destroy(&attributes);
}

}  // namespace

void set_up_environment(const LaunchOptions& options) {
  reserve_little();
  cuda::set_up_environment();
  // Ranks as threads that share a GPU share its context. The first launch of a kernel that is
  // loaded then may wait for all streams of the context, also for one that waits for a rank behind.
  if (cuda::built() && options.local_ranks > 1 && options.share_gpus) {
    ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  }
  comm::set_up_nccl_environment(options.share_gpus && options.gpu_transport == "nccl");
}

int launch(const LaunchOptions& options, const RankWork& work) {
  set_up_environment(options);
  RankWatch::block_signal();
  const LauncherEnvironment launcher = environment();
  FSDP_CHECK(launcher.foreign_size <= 1 || options.local_ranks > 0, "{}",
             foreign_refusal(getenv, launcher.foreign_size, own_command()));
  if (launcher.size > 1) {
    FSDP_CHECK(options.local_ranks == 0,
               "--local-ranks {}: not under a launcher that started {} processes; choose one",
               options.local_ranks, launcher.size);
    FSDP_CHECK(
        comm::MpiRuntime::available(),
        "the launcher started {} processes, but this build has no MPI; --local-ranks {} runs "
        "the ranks as threads of one process",
        launcher.size, launcher.size);
    FSDP_CHECK(!launcher.without_pmix || comm::MpiRuntime::reaches_slurm(),
               "the launcher started {} processes, but srun gave this MPI no way to connect them: "
               "srun --mpi=pmix fsdp ... (srun --mpi=list says what there is{}), or mpirun; for "
               "one process alone: env -u SLURM_STEP_NUM_TASKS fsdp ...",
               launcher.size,
               getenv("SUBMITIT_EXECUTOR") ? "; submitit: slurm_srun_args=['--mpi=pmix']" : "");
  }
  FSDP_CHECK(launcher.size > 0 || launcher.foreign_size > 0 || launcher.rank == 0 ||
                 (comm::MpiRuntime::available() && options.local_ranks == 0),
             "{}", unconnected_refusal(getenv, 0, 1, own_command()));
  const std::string binding = note_on_binding(openmp_variable);
  if (launcher.rank == 0 && !binding.empty()) print_line("note: " + binding);
  const bool alone = launcher.size == 1;
  if (launcher.started && !alone && options.local_ranks == 0 && comm::MpiRuntime::available()) {
    return launch_process(options, launcher, work);
  }
  if (alone && options.local_ranks == 0) {
    print_line("note: the launcher started one process, which runs without MPI");
  }
  return launch_threads(options, std::max(1, options.local_ranks), work);
}

void agree(comm::Communicator& world, const std::function<void()>& work) {
  std::string mine;
  Cause cause = Cause::kPerson;
  try {
    work();
  } catch (const std::exception& error) {
    mine = message_of(error);
    if (mine.empty()) mine = "unknown error";
    cause = cause_of(error);
  }
  const std::vector<std::string> messages = world.exchange(mine);
  const auto failed = std::find_if(messages.begin(), messages.end(),
                                   [](const std::string& message) { return !message.empty(); });
  if (failed == messages.end()) return;
  // Said by all: no one's in particular.
  const bool same = std::count(messages.begin(), messages.end(), *failed) == world.size();
  const auto rank = failed - messages.begin();
  // What fails on one rank may be what another rank's machine has caused.
  const std::vector<Cause> causes = comm::exchange_values(world, cause);
  throw AgreedError(same ? *failed : fmt::format("rank {}: {}", rank, *failed), status::kFailed,
                    *std::ranges::max_element(causes));
}

void agree(comm::Communicator& world, const IoPatience& patience,
           const std::function<void()>& work) {
  agree(world, [&] { patiently(patience, work); });
}

void check_same_settings(comm::Communicator& world, std::string_view what,
                         const std::vector<std::string>& settings) {
  const auto found = comm::difference_between(world, settings);
  if (!found) return;
  const size_t value = found->other.find(": ") + 2;
  throw AgreedError(fmt::format("ranks have different {}: {} on rank 0, {} on rank {}", what,
                                found->first, found->other.substr(value), found->rank));
}

bool first_rank_of_host(comm::Communicator& world) {
  const std::vector<std::string> hosts = world.exchange(host_name());
  const auto first = std::find(hosts.begin(), hosts.end(), host_name());
  return first - hosts.begin() == world.rank();
}

void check_one_process(std::string_view command) {
  const int processes = environment().size;
  FSDP_CHECK(processes <= 1, "{} is for one process, the launcher started {}: run it without",
             command, processes);
}

Cause cause_of(const std::exception& error) {
  const auto* agreed = dynamic_cast<const AgreedError*>(&error);
  return agreed ? agreed->cause() : fsdp::cause_of(error);
}

namespace {

std::string message_without_place(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) {
    return "out of memory: this process may not have more (see ulimit -v, and its control group)";
  }
  const auto* of_system = dynamic_cast<const std::system_error*>(&error);
  if (of_system && of_system->code() == std::errc::resource_unavailable_try_again) {
    return "a thread cannot be started: threads count towards the limits of addresses (ulimit -v) "
           "and of processes (ulimit -u)";
  }
  const auto* of_file = dynamic_cast<const std::filesystem::filesystem_error*>(&error);
  if (!of_file) return error.what();
  const std::string path = of_file->path1().string();
  return (path.empty() ? "" : path + ": ") + of_file->code().message();
}

}  // namespace

// A relative path leads nowhere then, whatever the message says of it.
std::string message_of(const std::exception& error) {
  const std::string_view hint =
      " (the current folder was deleted, or its storage is away: cd to another one)";
  std::string message = message_without_place(error);
  std::error_code gone;
  static_cast<void>(std::filesystem::current_path(gone));
  if (gone && !message.ends_with(hint)) message += hint;
  return message;
}

void report_error(const std::string& message) {
  if (environment().rank > 0) std::this_thread::sleep_for(kUntilNoticed);
  print_line(message);
}

}  // namespace fsdp::tools
