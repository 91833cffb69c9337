// Datagrams "<job key> <from> <to> <kind> <progress> <text>"; see [Note: who is silent]. Rank 0,
// which all others hear, passes on what it knows of the progress of all. Until then /proc alone
// knows of the other ranks.
#include "tools/launch/heartbeat.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/mpi_transport.h"
#include "tools/launch/backend_choice.h"
#include "tools/launch/interrupt.h"
#include "tools/launch/network_cards.h"

namespace fsdp::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBeatsInLimit = 8;
constexpr int kLate = 3;  // beats
constexpr std::chrono::milliseconds kLongestBeat(1000);
constexpr size_t kMostText = 900;      // bytes: a datagram that no network cuts
constexpr size_t kMostAddresses = 16;  // of a process
constexpr double kAlsoSilent = 0.6;    // of the limit: with the first of a host that is gone
constexpr char kBeat = 'b', kReason = 'r';

std::vector<uint32_t> addresses_of(const std::vector<NetworkCard>& cards) {
  std::vector<uint32_t> out;
  for (const NetworkCard& card : cards) {
    for (const std::string& text : card.addresses) {
      in_addr address = {};
      if (out.size() == kMostAddresses || ::inet_pton(AF_INET, text.c_str(), &address) != 1)
        continue;
      out.push_back(address.s_addr);
    }
  }
  return out;
}

sockaddr_in socket_address(uint32_t host, uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = host;
  address.sin_port = port;
  return address;
}

}  // namespace

// ---------------------------------------------------------------------------- Silence

SilenceWatch::SilenceWatch(Clock::duration limit, size_t peers, Clock::time_point now)
    : limit_(limit),
      beat_(std::min<Clock::duration>(limit / kBeatsInLimit, kLongestBeat)),
      ticked_(now),
      heard_(peers, now) {}

void SilenceWatch::tick(Clock::time_point now) {
  if (now - ticked_ > kLate * beat_) std::fill(heard_.begin(), heard_.end(), now);
  ticked_ = now;
}

double SilenceWatch::silence(size_t peer, Clock::time_point now) const {
  return std::chrono::duration<double>(now - heard_[peer]) / std::chrono::duration<double>(limit_);
}

// ---------------------------------------------------------------------------- Start and end

Heartbeat::Heartbeat(RankWatch& watch, const std::vector<NetworkCard>& cards)
    : watch_(watch), own_(addresses_of(cards)) {
  socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_in any = socket_address(INADDR_ANY, 0);
  if (socket_ >= 0 && ::bind(socket_, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) {
    ::close(socket_);
    socket_ = -1;
  }
}

Heartbeat::~Heartbeat() {
  watch_.remove(timer_);
  watch_.remove(socket_);
  if (!watched_ && socket_ >= 0) ::close(socket_);
}

std::string Heartbeat::card() const {
  sockaddr_in bound = {};
  socklen_t length = sizeof bound;
  if (socket_ < 0 || ::getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return "";
  }
  return fmt::format("{} {}", bound.sin_port, fmt::join(own_, " "));
}

void Heartbeat::start(Job job, Actions actions) {
  job_ = std::move(job);
  actions_ = std::move(actions);
  for (const Peer& peer : job_.peers) {
    if (peer.rank != 0 && job_.rank != 0 && !peer.reachable) continue;
    std::istringstream card(job_.cards[static_cast<size_t>(peer.rank)]);
    Neighbour neighbour = {.peer = peer, .addresses = {}, .at = {}};
    uint16_t port = 0;
    if (!(card >> port)) continue;  // it has no socket
    if (peer.reachable) neighbour.addresses.push_back({htonl(INADDR_LOOPBACK), port});
    for (uint32_t host = 0; card >> host;) neighbour.addresses.push_back({host, port});
    neighbour.heard = peer.reachable;
    neighbours_.push_back(std::move(neighbour));
  }
  if (socket_ < 0 || neighbours_.empty()) return;
  started_ = Clock::now();
  silence_ = SilenceWatch(job_.limit, neighbours_.size(), started_);
  beat();
  watched_ = true;
  watch_.add(socket_, [this] { read_all(); });
  timer_ = watch_.every(silence_.beat(), [this] {
    read_all();  // before anybody is called silent
    beat();
    look();
  });
}

void Heartbeat::stop_watching() {
  const std::lock_guard lock(mutex_);
  watching_ = false;
}

// ---------------------------------------------------------------------------- Datagrams

void Heartbeat::send(const Neighbour& neighbour, bool everywhere, const std::string& text) const {
  const auto send_to = [&](const Address& address) {
    const sockaddr_in to = socket_address(address.host, address.port);
    // A datagram that cannot be sent is one that does not arrive.
    static_cast<void>(::sendto(socket_, text.data(), text.size(), MSG_NOSIGNAL,
                               reinterpret_cast<const sockaddr*>(&to), sizeof to));
  };
  if (!everywhere && neighbour.known.port != 0) return send_to(neighbour.known);
  for (const Address& address : neighbour.addresses) send_to(address);
}

void Heartbeat::beat() {
  const std::string at = actions_.at ? actions_.at() : "";
  const std::lock_guard lock(mutex_);
  const bool ends = !reason_.empty();
  const comm::WorkProgress* const work = actions_.progress.get();
  const uint64_t progress = !work ? 0 : job_.rank == 0 ? work->of_job() : work->own();
  for (size_t i = 0; i < neighbours_.size(); ++i) {
    const Neighbour& neighbour = neighbours_[i];
    const bool everywhere = ends || silence_.silence(i, Clock::now()) > 0.5;
    send(neighbour, everywhere,
         fmt::format("{:x} {} {} {} {} {}", job_.key, job_.rank, neighbour.peer.rank,
                     ends ? kReason : kBeat, progress, (ends ? reason_ : at).substr(0, kMostText)));
  }
}

void Heartbeat::read_all() {
  char text[2048];
  for (;;) {
    sockaddr_in from = {};
    socklen_t length = sizeof from;
    const ssize_t bytes =
        ::recvfrom(socket_, text, sizeof text, 0, reinterpret_cast<sockaddr*>(&from), &length);
    if (bytes < 0) return;
    take({text, static_cast<size_t>(bytes)}, {from.sin_addr.s_addr, from.sin_port});
  }
}

void Heartbeat::take(std::string_view datagram, Address from) {
  std::istringstream in{std::string(datagram)};
  uint64_t key = 0;
  int sender = -1, receiver = -1;
  char kind = 0;
  uint64_t progress = 0;
  in >> std::hex >> key >> std::dec >> sender >> receiver >> kind >> progress;
  if (!in || key != job_.key || receiver != job_.rank) return;  // somebody else's
  std::string text;
  in.get();
  std::getline(in, text, '\0');
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(neighbours_.begin(), neighbours_.end(),
                                    [&](const Neighbour& n) { return n.peer.rank == sender; });
    if (found == neighbours_.end()) return;
    found->known = from;
    found->heard = true;
    silence_.heard(static_cast<size_t>(found - neighbours_.begin()), Clock::now());
    found->progress = progress;
    if (actions_.progress) {
      uint64_t all = 0;
      for (const Neighbour& each : neighbours_) all += each.progress;
      actions_.progress->hear(all);
    }
    if (kind == kBeat) found->at = text;
    if (kind == kBeat || !watching_ || acted_) return;
    acted_ = true;
  }
  watch_.apart([this, text] { actions_.told(text); });
}

void Heartbeat::tell(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason;
  }
  if (socket_ >= 0) beat();  // to nobody, where it has not started
}

std::string Heartbeat::last_of(int rank) const {
  const std::lock_guard lock(mutex_);
  for (const Neighbour& neighbour : neighbours_) {
    if (neighbour.peer.rank == rank) return neighbour.at;
  }
  return "";
}

// ---------------------------------------------------------------------------- Silence

// For `part` of the time after which it is; under the lock.
bool Heartbeat::is_silent(size_t i, double part) const {
  const Neighbour& neighbour = neighbours_[i];
  const double silence = silence_.silence(i, Clock::now());
  if (!neighbour.heard || silence < part) return false;
  if (!neighbour.peer.reachable) {  // the others of its host, if they live, say so earlier
    const bool host_lives =
        std::any_of(neighbours_.begin(), neighbours_.end(), [&](const Neighbour& other) {
          const auto j = static_cast<size_t>(&other - neighbours_.data());
          return other.peer.host == neighbour.peer.host && other.heard &&
                 silence_.silence(j, Clock::now()) < kAlsoSilent;
        });
    return !host_lives || silence >= 1.5 * part;
  }
  const std::string state = process_state(neighbour.peer.process);
  if (state.empty() || state == "Z") return false;  // the rank watch has seen it
  return state == "T" || state == "t" || silence >= 2 * part;
}

void Heartbeat::look() {
  note_unheard();
  std::vector<int> ranks;  // with a host all of its ranks are gone, a beat earlier or later
  {
    const std::lock_guard lock(mutex_);
    silence_.tick(Clock::now());
    if (!watching_ || !reason_.empty() || acted_) return;
    for (size_t i = 0; i < neighbours_.size(); ++i) {
      acted_ = acted_ || is_silent(i, 1);
      if (is_silent(i, kAlsoSilent)) ranks.push_back(neighbours_[i].peer.rank);
    }
    if (!acted_) return;
  }
  watch_.apart([this, ranks] { actions_.silent(ranks); });
}

void Heartbeat::note_unheard() {
  std::map<std::string, std::vector<int>> ranks;  // by host and its addresses
  {
    const std::lock_guard lock(mutex_);
    if (noted_ || job_.rank != 0 || Clock::now() - started_ < 3 * job_.limit) return;
    noted_ = true;
    for (const Neighbour& neighbour : neighbours_) {
      if (neighbour.heard) continue;
      std::string place = neighbour.peer.host;
      for (const Address& address : neighbour.addresses) {
        char text[INET_ADDRSTRLEN] = "";
        place += std::string(", ") + ::inet_ntop(AF_INET, &address.host, text, sizeof text);
      }
      ranks[place].push_back(neighbour.peer.rank);
    }
  }
  if (ranks.empty()) return;
  std::vector<std::string> texts;
  for (const auto& [place, of_place] : ranks) {
    texts.push_back(fmt::format("rank{} {} ({})", of_place.size() == 1 ? "" : "s",
                                fmt::join(of_place, ", "), place));
  }
  actions_.note(fmt::format(
      "no heartbeat from {}: is UDP blocked between the hosts? Only runtime.timeout_s ends the job "
      "if a host or the network fails",
      fmt::join(texts, ", ")));
}

namespace {

namespace fs = std::filesystem;

fs::path program_of(const std::string& process) {
  std::error_code hidden;
  return fs::read_symlink("/proc/" + process + "/exe", hidden);
}

pid_t parent_of(const std::string& process) {
  std::ifstream status("/proc/" + process + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("PPid:")) return std::atoi(line.c_str() + 5);
  }
  return 0;
}

// "rank 3 (node1, process 4711)"
std::string name_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/environ", process));
  for (std::string variable; std::getline(file, variable, '\0');) {
    for (const std::string_view name : {"OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "PMIX_RANK="}) {
      if (!variable.starts_with(name)) continue;
      return fmt::format("rank {} ({}, process {})", variable.substr(name.size()), host_name(),
                         process);
    }
  }
  return fmt::format("process {} ({})", process, host_name());
}

}  // namespace

std::vector<pid_t> sibling_processes() {
  const fs::path program = program_of("self");
  std::vector<pid_t> out;
  std::error_code hidden;
  for (const auto& entry : fs::directory_iterator("/proc", hidden)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t process = std::atoi(name.c_str());
    const bool other = process != ::getpid() && parent_of(name) == ::getppid();
    if (other && program_of(name) == program) out.push_back(process);
  }
  return out;
}

StartWatch::StartWatch(RankWatch& watch, Limits limits, Failed failed)
    : watch_(watch),
      limits_(limits),
      failed_(std::move(failed)),
      patience_(limits.start),
      silence_(limits.silence.count() > 0 ? limits.silence : std::chrono::seconds(8), 1,
               std::chrono::steady_clock::now()),
      timer_(watch.every(silence_.beat(), [this] { look(); })) {}

StartWatch::~StartWatch() { watch_.remove(timer_); }

void StartWatch::look() {
  if (!failed_) return;
  const std::string reason = reason_to_end();
  if (!reason.empty()) std::exchange(failed_, nullptr)(reason);
}

// A process that is stopped now may have been so for a moment: it has to be for the whole limit, in
// which this one ran. See [Note: who is silent] in heartbeat.h.
std::string StartWatch::reason_to_end() {
  const auto now = std::chrono::steady_clock::now();
  silence_.tick(now);
  if (waiting_signal() != 0 && !asked_) asked_ = now;
  if (asked_ && now - *asked_ > limits_.signal) ::_exit(status_after(waiting_signal()));
  pid_t now_stopped = 0;
  for (const pid_t process : sibling_processes()) {
    if (process_state(process) == "T") now_stopped = process;
  }
  if (now_stopped == 0 || now_stopped != stopped_) silence_.heard(0, now);
  stopped_ = now_stopped;
  if (limits_.silence.count() > 0 && silence_.silence(0, now) >= 1) {
    return fmt::format(
        "{}: no sign of life for {:g} s: its process is stopped; the job was at its start",
        name_of(stopped_), limits_.silence.count() / 1000.0);
  }
  if (!patience_.over()) return "";
  return fmt::format(
      "{} on {}: the processes of the job have not found each other within {:g} s "
      "(runtime.timeout_s): {}",
      name_of(::getpid()), describe(reaching(network_cards())), limits_.start.count() / 1000.0,
      comm::MpiRuntime::begun()
          ? "MPI_Init is done, but first messages do not arrive: does a firewall stand between the "
            "hosts? launch.interface chooses the network card"
          : "MPI_Init waits for all: has the launcher started them on every host?");
}

}  // namespace fsdp::tools
