// Contract: tools/launch/thread_choice.h.
#include "tools/launch/thread_choice.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <string_view>

#include <fmt/format.h>
#include <sched.h>

#include "core/text/counted.h"
#include "tools/launch/openmp_variables.h"

namespace fsdp::tools {
namespace {

std::string_view trimmed(std::string_view text, std::string_view space = " \t\r\n") {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(space)));
  return text.substr(0, text.find_last_not_of(space) + 1);
}

struct OmpThreads {
  int threads = 0;  // 0: not said
  std::string warning{};
};

constexpr int kMostThreads = 1024;

// "3500m" are thousandths of a CPU, as Kubernetes writes them; "3.5".
int whole_cpus(std::string_view text) {
  const bool thousandths = text.ends_with('m');
  if (thousandths) text.remove_suffix(1);
  double cpus = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, cpus, std::chars_format::fixed);
  if (error != std::errc() || rest != end || !(cpus > 0)) return 0;
  cpus = thousandths ? cpus / 1000 : cpus;
  return cpus > kMostThreads ? 0 : std::max(1, static_cast<int>(cpus));
}

// The first number of the variable: OpenMP's further ones are for nested teams, of which there are
// none. Nothing is said by an empty variable (`export OMP_NUM_THREADS=`).
OmpThreads omp_threads(const char* variable) {
  const std::string_view all = trimmed(variable ? variable : "");
  const std::string_view first = trimmed(all.substr(0, all.find(',')));
  if (all.empty()) return {};
  const std::string_view bare = trimmed(first, "\"'");  // docker --env-file keeps quotes
  const std::string_view digits = bare.substr(bare.starts_with('+'));
  int threads = 0;
  const char* const end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, threads);
  const bool number =
      error == std::errc() && rest == end && threads >= 1 && threads <= kMostThreads;
  if (number && bare == first) return {threads};
  if (!number) threads = whole_cpus(bare);
  return {threads,
          fmt::format("OMP_NUM_THREADS={}: expected a number from 1 to {}, {}", all, kMostThreads,
                      threads ? fmt::format("taken as {}", threads) : "it has no effect")};
}

// A rank more than half of whose last CPU is there has a thread for it: a thread that is stopped
// for less than half of the time computes more than it makes the others wait.
int whole_threads(double cpus) { return std::max(1, static_cast<int>(std::ceil(cpus - 0.5))); }

int share_of_cores(const CoreSharing& cores) {
  return std::max(1, cores.usable / std::max(1, cores.ranks));
}

// Threads of one rank.
int share_of(const CoreSharing& cores) {
  const int share = share_of_cores(cores);
  if (cores.quota.cpus == 0) return share;
  return std::min(share, whole_threads(cores.quota.cpus / std::max(1, cores.ranks_of_quota)));
}

std::string threads_a_rank(int threads) { return counted(threads, "thread") + " a rank"; }

std::string omp_note(int threads, const CoreSharing& cores) {
  const int share = share_of(cores);
  const int usable = cores.quota.cpus == 0
                         ? cores.usable
                         : std::min(cores.usable, whole_threads(cores.quota.cpus));
  const int idle = usable - threads * cores.ranks;
  const std::string cost =
      idle <= 0 || share <= threads
          ? ""
          : fmt::format("; {} of {} cores stay idle, --threads {} uses them", idle, usable, share);
  return fmt::format("OMP_NUM_THREADS={}: {}{}", threads, threads_a_rank(threads), cost);
}

// What a number of threads that the user said costs; "": nothing.
std::string excess(int threads, const CoreSharing& cores) {
  const auto shares = [&](int ranks, const std::string& what) {
    return fmt::format("{} of {} threads {} {}: fewer threads are faster", counted(ranks, "rank"),
                       threads, ranks == 1 ? "shares" : "share", what);
  };
  if (threads * cores.ranks > cores.usable) {
    return threads == 1 ? fmt::format("{} ranks share {} cores: fewer ranks are faster",
                                      cores.ranks, cores.usable)
                        : shares(cores.ranks, fmt::format("{} cores", cores.usable));
  }
  if (threads > 1 && cores.quota.cpus > 0 && threads > share_of(cores)) {
    return shares(cores.ranks_of_quota, fmt::format("{:.4g} of {} CPUs, {}", cores.quota.cpus,
                                                    cores.usable, cores.quota.source));
  }
  return "";
}

}  // namespace

// The kernel refuses a set that is smaller than its own.
std::vector<int> own_cores() {
  std::vector<int> cores;
  for (int most = CPU_SETSIZE; most <= 1 << 16 && cores.empty(); most *= 2) {
    const size_t bytes = CPU_ALLOC_SIZE(most);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(most), [](cpu_set_t* each) { CPU_FREE(each); });
    CPU_ZERO_S(bytes, set.get());
    if (::sched_getaffinity(0, bytes, set.get()) != 0) continue;
    for (int core = 0; core < most; ++core) {
      if (CPU_ISSET_S(core, bytes, set.get())) cores.push_back(core);
    }
  }
  return cores.empty() ? std::vector<int>{0} : cores;
}

ThreadChoice choose_threads(int requested, const CoreSharing& cores, const char* omp_num_threads) {
  const OmpThreads said = requested > 0 ? OmpThreads() : omp_threads(omp_num_threads);
  if (!said.warning.empty() || said.threads > 0) {
    ThreadChoice choice = choose_threads(said.threads, cores);
    if (said.threads > 0) choice.note = omp_note(said.threads, cores);
    choice.warning = said.warning + (said.warning.empty() || choice.warning.empty() ? "" : "; ") +
                     choice.warning;
    return choice;
  }
  const int threads = requested > 0 ? requested : share_of(cores);
  const bool bound = cores.bound_by_launcher && cores.usable < cores.of_machine;
  if (bound && threads > cores.usable) {
    return {threads,
            fmt::format("{} threads per rank, but the launcher bound each rank to {} of {} "
                        "cores; give mpirun --bind-to none",
                        threads, cores.usable, cores.of_machine)};
  }
  if (requested > 0) return {threads, excess(threads, cores)};
  ThreadChoice choice = {threads, ""};
  if (threads < share_of_cores(cores)) {
    choice.note = fmt::format("{}: {:.4g} of {} CPUs, {}", cores.quota.source, cores.quota.cpus,
                              cores.usable, threads_a_rank(threads));
  } else if (bound && cores.usable * cores.ranks_on_host < cores.of_machine) {
    choice.warning = fmt::format(
        "the launcher bound each rank to {} of {} cores; mpirun --bind-to none lets its threads "
        "use more",
        cores.usable, cores.of_machine);
  }
  return choice;
}

int threads_here(int requested, int ranks) {
  const CoreSharing sharing = {.usable = static_cast<int>(own_cores().size()),
                               .ranks = ranks,
                               .ranks_on_host = ranks,
                               .quota = cpu_quota(),
                               .ranks_of_quota = ranks};
  return choose_threads(requested, sharing, openmp_variable("OMP_NUM_THREADS")).threads;
}

}  // namespace fsdp::tools
