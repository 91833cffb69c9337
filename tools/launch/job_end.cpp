// See [Note: who reports]. The processes that end the launcher may be copies of a process with
// threads, so they only make system calls; and they hold no file open of which the launcher waits
// for the end.
#include "tools/launch/job_end.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/exchange.h"
#include "comm/rank_place.h"
#include "tools/launch/backend_choice.h"

namespace fsdp::tools {
namespace {

using std::chrono::milliseconds;

// Where the copies find what they use.
constexpr int kLauncher = 0, kRank = 1;

// A handle of the launcher's process of this host, which started this one; -1: it is none that we
// know.
int open_launcher() {
  const pid_t parent = ::getppid();
  std::ifstream file(fmt::format("/proc/{}/comm", parent));
  std::string name;
  std::getline(file, name);
  constexpr std::string_view kLaunchers[] = {"mpirun", "mpiexec", "orterun",
                                             "orted",  "prterun", "prted"};
  const bool known =
      std::find(std::begin(kLaunchers), std::end(kLaunchers), name) != std::end(kLaunchers);
  return known ? static_cast<int>(::syscall(SYS_pidfd_open, parent, 0)) : -1;
}

// Whether the launcher has ended within this time.
bool ended_within(milliseconds wait) {
  pollfd launcher = {kLauncher, POLLIN, 0};
  return ::poll(&launcher, 1, static_cast<int>(wait.count())) != 0;
}

void send_launcher(int signal) { ::syscall(SYS_pidfd_send_signal, kLauncher, signal, nullptr, 0U); }

void end_launcher(milliseconds wait, milliseconds until_kill) {
  if (ended_within(wait)) return;
  send_launcher(SIGTERM);
  if (!ended_within(until_kill)) send_launcher(SIGKILL);
}

// Runs `work` in a process of its own, which has the launcher's handle as file 0 and `file` as 1.
// Returns the process; -1: there is none.
pid_t run_apart(int launcher, int file, const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setsid();
  const int at_launcher = ::fcntl(launcher, F_DUPFD, 2);  // neither may lie where the other goes
  const int at_file = file < 0 ? -1 : ::fcntl(file, F_DUPFD, 2);
  ::dup2(at_launcher, kLauncher);
  ::close(kRank);
  if (at_file >= 0) ::dup2(at_file, kRank);
  for (int other = 2; other < 1024; ++other) ::close(other);
  work();
  ::_exit(0);
}

}  // namespace

void end_launcher_after(milliseconds wait, milliseconds until_kill) {
  const int launcher = open_launcher();
  if (launcher < 0) return;
  run_apart(launcher, -1, [=] { end_launcher(wait, until_kill); });
  ::close(launcher);
}

LauncherGuard::LauncherGuard(milliseconds patience) {
  const int launcher = open_launcher();
  if (launcher < 0) return;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) == 0) {
    guard_ = run_apart(launcher, ends[0], [patience] {
      char byte = 0;
      if (::read(kRank, &byte, 1) != 0) return;  // all is well
      end_launcher(patience, std::chrono::seconds(10));
    });
    ::close(ends[0]);
    pipe_ = ends[1];
  }
  ::close(launcher);
}

LauncherGuard::~LauncherGuard() {
  if (pipe_ < 0) return;
  const char byte = 1;
  const ssize_t ignored = ::write(pipe_, &byte, 1);
  static_cast<void>(ignored);
  ::close(pipe_);
  if (guard_ > 0) ::waitpid(guard_, nullptr, 0);
}

namespace {

using std::chrono::milliseconds;

// A cause of failure is often seen by several ranks at once. Those behind the lowest hold their
// tongue for a while: by then the launcher has ended them, unless they are alone with it.
constexpr milliseconds kTurn(500);  // times the rank
constexpr int kMostTurns = 10;
constexpr milliseconds kUntilReported(5000);  // for ranks that another one ends
constexpr milliseconds kUntilAborted(3000);   // for the launcher, after MPI_Abort
constexpr milliseconds kUntilLauncherEnds(1500);
constexpr milliseconds kOneOccasion(1000);  // requests so close belong together
// What a report takes. In blocks for which malloc makes no mapping of their own: given back, they
// serve also where the system gives nothing more.
constexpr size_t kSpareBlock = size_t{64} << 10;  // bytes
constexpr size_t kSpareBlocks = 16;

extern "C" void end_at_once(int) { ::_exit(1); }

// MPI_Abort waits for the launcher. A timer and no thread: where memory is short none can be
// started.
void end_without_mpi_later() {
  struct sigaction action = {};
  action.sa_handler = end_at_once;
  ::sigaction(SIGALRM, &action, nullptr);
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
  constexpr auto kWait = std::chrono::microseconds(kUntilAborted + kUntilLauncherEnds).count();
  const itimerval once = {.it_interval = {},
                          .it_value = {.tv_sec = kWait / 1'000'000, .tv_usec = kWait % 1'000'000}};
  ::setitimer(ITIMER_REAL, &once, nullptr);
}

std::string place_of(const comm::CollectiveRings& rings) {
  return comm::place_of(rings.phase(), rings.snapshot());
}

}  // namespace

void print_line(const std::string& message) {
  std::fprintf(stderr, "fsdp: %s\n", message.c_str());
  std::fflush(stderr);
}

void print_rings(const RingDump& rings) {
  std::string text;
  try {
    text = rings.collect();
  } catch (const std::exception& error) {
    text = fmt::format("the rings of collectives cannot be read: {}\n", error.what());
  }
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

std::vector<Peer> find_peers(comm::Communicator& world) {
  // A process number means something only within its namespace.
  char space[64] = "";
  if (::readlink("/proc/self/ns/pid", space, sizeof space - 1) < 0) space[0] = 0;
  const std::vector<std::string> here = {host_name(), space};
  const auto places = comm::exchange_texts(world, here);
  const std::vector<pid_t> processes = comm::exchange_values(world, ::getpid());
  std::vector<Peer> peers;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (rank == world.rank()) continue;
    const auto r = static_cast<size_t>(rank);
    peers.push_back({.rank = rank,
                     .host = places[r][0],
                     .process = processes[r],
                     .reachable = places[r] == here && space[0] != 0});
  }
  return peers;
}

JobEnd::JobEnd(comm::MpiRuntime& runtime, RankWatch& watch, const RingDump& rings,
               std::vector<Peer> peers, milliseconds limit, const std::vector<NetworkCard>& cards)
    : runtime_(runtime),
      watch_(watch),
      rings_(rings),
      peers_(std::move(peers)),
      limit_(limit),
      heartbeat_(watch, cards) {
  std::copy_if(peers_.begin(), peers_.end(), std::back_inserter(near_),
               [](const Peer& peer) { return peer.reachable; });
  for (size_t i = 0; i < kSpareBlocks; ++i) {
    spare_.push_back(std::make_unique_for_overwrite<char[]>(kSpareBlock));
  }
  start_heartbeat();
  for (const Peer& peer : near_) {
    watch_.on_end(peer.process, [this, &peer] { gone(peer); });
  }
  watch_.on_request([this](WatchRequest request) { answer(request); });
}

void JobEnd::start_heartbeat() {
  comm::Communicator& world = runtime_.world();
  std::random_device random;
  const std::vector<uint64_t> keys =
      comm::exchange_values(world, (uint64_t{random()} << 32) ^ random());
  const std::vector<std::string> cards = world.exchange(heartbeat_.card());
  if (limit_.count() == 0) return;
  heartbeat_.start(
      {.key = keys[0], .rank = world.rank(), .peers = peers_, .cards = cards, .limit = limit_},
      {.progress = world.rings()->progress(),
       .at = [rings = world.rings()] { return place_of(*rings); },
       .silent = [this](const std::vector<int>& ranks) { silent(ranks); },
       .told = [this](const std::string& reason) { told(reason); },
       .note = [](const std::string& text) { print_line("note: " + text); }});
}

void JobEnd::finish() {
  runtime_.world().barrier();
  heartbeat_.stop_watching();
}

// ---------------------------------------------------------------------------- Requests

// One rank of a host speaks, the lowest; the others pass on what they are asked. Who asks mpirun
// asks every rank: the requests that come together get one answer.
void JobEnd::answer(WatchRequest request) {
  using Clock = std::chrono::steady_clock;
  const bool speaks = near_.empty() || runtime_.world().rank() < near_[0].rank;
  if (request != WatchRequest::kWriteOwn && speaks) {
    if (answered_ && Clock::now() - *answered_ < kOneOccasion) return;
    print_rings(rings_);
    answered_ = Clock::now();
    return;
  }
  rings_.write_own();
  if (request == WatchRequest::kPerson) send_request(near_[0].process, WatchRequest::kCollect);
}

// ---------------------------------------------------------------------------- Ends

const Peer& JobEnd::peer_of(int rank) const {
  return *std::find_if(peers_.begin(), peers_.end(),
                       [&](const Peer& peer) { return peer.rank == rank; });
}

// "; last heard of in step 12, backward, unit blocks.3; rank 0 is in step 14, forward, unit root".
// What a rank was heard of in is up to a beat old, which can be many steps. All ranks follow one
// schedule, so this rank, which waits or soon will, is close to where the other one was.
std::string JobEnd::where(int rank) const {
  const std::string at = heartbeat_.last_of(rank);
  const std::string own = place_of(*runtime_.world().rings());
  std::string text = at.empty() ? "" : "; last heard of in " + at;
  if (!own.empty()) text += fmt::format("; rank {} is in {}", runtime_.world().rank(), own);
  return text;
}

void JobEnd::fail(const std::string& what) {
  if (!claim()) std::this_thread::sleep_for(std::chrono::hours(24));
  spare_.clear();  // memory may be what is missing
  comm::Communicator& world = runtime_.world();
  const std::string place = rings_.worth_explaining() ? place_of(*world.rings()) : "";
  const std::string reason = what + (place.empty() ? "" : "; its last collective was in " + place);
  const std::string& host = runtime_.host_name();
  const bool first = world.abort(fmt::format("{} (on {})", reason, host));
  const auto turn = kTurn * std::min(world.rank(), kMostTurns);
  if (!first) {  // who was first says it for all
    rings_.write_own();
    end(reason, kUntilReported + turn);
  }
  const std::string line =
      (world.size() == 1 ? "" : fmt::format("rank {} ({}): ", world.rank(), host)) + reason;
  heartbeat_.tell(line);
  // It cannot see the other hosts.
  end(line, world.size() > runtime_.local_size() ? turn : milliseconds(0));
}

// At once: a launcher that has noticed gives the others a second. Of the ranks left on this host
// the lowest speaks, unless a rank has said why before it went. The others end by the abort, and
// still have to answer.
void JobEnd::gone(const Peer& peer) {
  comm::Communicator& world = runtime_.world();
  const bool speaks = [&] {
    const std::lock_guard lock(mutex_);
    gone_.insert(peer.rank);
    return std::none_of(near_.begin(), near_.end(), [&](const Peer& other) {
      return other.rank < world.rank() && !gone_.contains(other.rank);
    });
  }();
  const std::string reason =
      fmt::format("rank {} ({}, process {}) is gone: killed, or ended without a word{}", peer.rank,
                  peer.host, peer.process, where(peer.rank));
  if (!speaks || !claim()) return;
  const bool first = world.abort(reason);
  heartbeat_.tell(reason);
  end(reason, first ? milliseconds(0) : kUntilReported);
}

void JobEnd::silent(const std::vector<int>& ranks) {
  comm::Communicator& world = runtime_.world();
  const Peer& first = peer_of(ranks.front());
  const bool one = ranks.size() == 1;
  std::string who =
      fmt::format("rank{} {} ({}", one ? "" : "s", fmt::join(ranks, ", "), first.host);
  who += one ? fmt::format(", process {})", first.process) : ")";
  std::string why = "its process does not run";
  if (!first.reachable) {
    why = "the host is down, or the network between, or what runs there is stopped";
  } else if (process_state(first.process) == "T") {
    why = one ? "its process is stopped" : "their processes are stopped";
  }
  const std::string reason = fmt::format("{}: no sign of life for {:.0f} s: {}{}", who,
                                         limit_.count() / 1000.0, why, where(first.rank));
  // Who has the same to say: the ranks below that are not silent themselves.
  int turns = 0;
  for (const Peer& peer : near_) {
    turns +=
        peer.rank < world.rank() && std::find(ranks.begin(), ranks.end(), peer.rank) == ranks.end();
  }
  std::this_thread::sleep_for(kTurn * std::min(turns, kMostTurns));
  if (!claim()) return;
  const bool speaks = world.abort(reason);
  heartbeat_.tell(reason);
  rings_.write_own();
  end(reason, speaks ? milliseconds(0) : kUntilReported + kTurn * turns);
}

void JobEnd::told(const std::string& reason) {
  if (!claim()) return;
  comm::Communicator& world = runtime_.world();
  world.abort(reason);
  heartbeat_.tell(reason);  // to the ranks that the first call did not reach
  rings_.write_own();
  end(reason, kUntilReported + kTurn * std::min(world.rank(), kMostTurns));
}

// MPI cannot be ended in order here: others may wait for this rank.
void JobEnd::end(const std::string& line, milliseconds wait) {
  std::this_thread::sleep_for(wait);
  print_line(line);
  if (runtime_.world().size() > 1 && rings_.worth_explaining()) print_rings(rings_);
  if (runtime_.world().size() > runtime_.local_size()) end_launcher_after(kUntilAborted);
  end_without_mpi_later();
  rings_.leave_end(1, line);
  runtime_.abort(1);
}

}  // namespace fsdp::tools
