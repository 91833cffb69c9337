// Choice of transport and threads, and the end of a run: see the note in the header.
#include "tools/runtime/launch.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <thread>
#include <vector>

#include "comm/local_transport.h"
#include "comm/mpi_transport.h"

namespace fsdp::tools {
namespace {

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

// The cores this process may use, as text that is equal for processes that share them.
struct Cores {
  int count = 1;
  std::string mask;
};

Cores usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {};
  Cores cores{.count = std::max(1, CPU_COUNT(&set)), .mask = {}};
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) cores.mask += fmt::format("{},", i);
  }
  return cores;
}

// Ranks that run on the very cores of this one. Collective.
int ranks_on_same_cores(comm::Communicator& world, const Cores& cores) {
  const std::string mine = host_name() + ":" + cores.mask;
  const std::vector<std::string> all = world.exchange(mine);
  return static_cast<int>(std::count(all.begin(), all.end(), mine));
}

void print_error(const std::string& message) {
  std::fprintf(stderr, "fsdp: %s\n", message.c_str());
  std::fflush(stderr);
}

std::string at_rank(const comm::Communicator& world, const std::string& message) {
  if (world.size() == 1) return message;
  return fmt::format("rank {} ({}): {}", world.rank(), host_name(), message);
}

bool bound_by_launcher() {
  const char* at_launch = std::getenv("OMPI_MCA_orte_bound_at_launch");
  const int machine = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  return at_launch != nullptr && usable_cores().count < machine;
}

int run_rank(comm::Communicator& world, const LaunchOptions& options, int local_ranks,
             const std::function<int(RankContext&)>& body) {
  const Cores cores = usable_cores();
  const ThreadChoice choice = choose_threads(
      options.threads, cores.count, ranks_on_same_cores(world, cores), bound_by_launcher());
  if (world.rank() == 0 && !choice.warning.empty()) print_error("warning: " + choice.warning);
  RankContext context{.world = world, .threads = choice.threads, .local_ranks = local_ranks};
  return body(context);
}

// ---------------------------------------------------------------------------- Ranks as threads

// What became of one rank. The first rank to fail is the cause; the others fail in its wake.
struct Outcome {
  int status = 0;
  int order = 0;  // of the failure in time
  std::string error;
  bool agreed = false;
};

Outcome run_guarded(comm::Communicator& world, const std::function<int()>& body) {
  try {
    return {.status = body()};
  } catch (const AgreedError& error) {
    return {.status = 1, .error = error.what(), .agreed = true};
  } catch (const std::exception& error) {
    return {.status = 1, .error = at_rank(world, error.what())};
  }
}

int launch_threads(const LaunchOptions& options, int ranks,
                   const std::function<int(RankContext&)>& body) {
  comm::LocalGroup group(ranks);
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  std::atomic<int> failures{0};
  const auto run = [&](int rank) {
    comm::Communicator& world = group.communicator(rank);
    Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    outcome = run_guarded(world, [&] { return run_rank(world, options, ranks, body); });
    if (outcome.error.empty()) return;
    outcome.order = ++failures;
    if (!outcome.agreed) world.abort(outcome.error);
  };
  std::vector<std::thread> others;
  for (int rank = 1; rank < ranks; ++rank) others.emplace_back(run, rank);
  run(0);
  for (std::thread& thread : others) thread.join();
  const auto cause = std::min_element(
      outcomes.begin(), outcomes.end(), [](const Outcome& a, const Outcome& b) {
        return (a.error.empty() ? INT_MAX : a.order) < (b.error.empty() ? INT_MAX : b.order);
      });
  if (!cause->error.empty()) print_error(cause->error);
  return cause->status;
}
