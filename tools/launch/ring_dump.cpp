// Files of rings, and asking for them.
#include "tools/launch/ring_dump.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include <unistd.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/trace.h"
#include "tools/launch/end_note.h"
#include "tools/launch/rank_watch.h"

namespace fsdp::tools {
namespace {

constexpr std::chrono::milliseconds kPatience(2000);
constexpr std::chrono::milliseconds kLook(20);
// What a rank of another host left longer ago belongs to another occasion.
constexpr auto kFresh = std::chrono::seconds(10);

constexpr std::string_view kStates[] = {"issued", "started", "done"};

Json json_of(const comm::CallRecord& call) {
  return {{"sequence", call.sequence},
          {"kind", call.kind},
          {"unit", call.unit},
          {"dtype", call.dtype},
          {"phase", call.phase.whole},
          {"bytes", call.bytes},
          {"state", kStates[static_cast<size_t>(call.state)]},
          {"issued_ns", call.issued_ns},
          {"started_ns", call.started_ns},
          {"done_ns", call.done_ns}};
}

comm::CallRecord call_from(const Json& json) {
  const auto* state =
      std::find(std::begin(kStates), std::end(kStates), json.at("state").get<std::string>());
  FSDP_CHECK(state != std::end(kStates), "state: expected issued, started or done, got {}",
             json.at("state").get<std::string>());
  return {.sequence = json.at("sequence"),
          .kind = json.at("kind"),
          .unit = json.at("unit"),
          .phase = {.whole = json.at("phase"), .innermost = {}},
          .dtype = json.at("dtype"),
          .bytes = json.at("bytes"),
          .state = static_cast<comm::CallState>(state - std::begin(kStates)),
          .issued_ns = json.at("issued_ns"),
          .started_ns = json.at("started_ns"),
          .done_ns = json.at("done_ns")};
}

Json json_of(const comm::PhaseWait& wait) {
  return {{"phase", wait.phase.whole}, {"innermost", wait.phase.innermost},
          {"calls", wait.calls},       {"wait_ns", wait.wait_ns},
          {"begin_ns", wait.begin_ns}, {"end_ns", wait.end_ns}};
}

comm::PhaseWait wait_from(const Json& json) {
  return {.phase = {json.at("phase"), json.at("innermost")},
          .calls = json.at("calls"),
          .wait_ns = json.at("wait_ns"),
          .begin_ns = json.at("begin_ns"),
          .end_ns = json.at("end_ns")};
}

bool is_gone(const Peer& peer) {
  const std::string state = process_state(peer.process);
  return state.empty() || state == "Z";
}

bool is_stopped(const Peer& peer) {
  const std::string state = process_state(peer.process);
  return state == "T" || state == "t";
}

std::string why_silent(const Peer& peer) {
  if (!peer.reachable) return "no answer: on another host";
  if (is_gone(peer)) return "no answer: the process is gone";
  if (is_stopped(peer)) return "no answer: the process is stopped";
  return fmt::format("no answer within {} s", kPatience.count() / 1000);
}

// On a full disk the job still has to end in order, and what was read is still printed.
void leave(const std::filesystem::path& path, const std::string& text) {
  try {
    write_file_atomically(path, text);
  } catch (const Error&) {
  }
}

}  // namespace

std::string process_state(pid_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("State:")) return line.substr(line.find_first_not_of(" \t", 6), 1);
  }
  return "";
}

std::string to_json(const comm::RankRings& rank) {
  Json rings = Json::array();
  for (const comm::RingSnapshot& ring : rank.rings) {
    Json calls = Json::array();
    for (const comm::CallRecord& call : ring.records) calls.push_back(json_of(call));
    Json waits = Json::array();
    for (const comm::PhaseWait& wait : ring.waits) waits.push_back(json_of(wait));
    rings.push_back({{"communicator", ring.name},
                     {"members", ring.members},
                     {"ordinal", ring.ordinal},
                     {"issued", ring.issued},
                     {"calls", calls},
                     {"waits", waits}});
  }
  return Json{{"rank", rank.rank},
              {"place", rank.place},
              {"now_ns", rank.now_ns},
              {"phase", rank.phase},
              {"rings", rings}}
             .dump({.indent = 1}) +
         "\n";
}

comm::RankRings rings_from_json(const std::string& text, const std::string& source) {
  try {
    const Json json = parse_json(text, source);
    comm::RankRings rank = {.rank = json.at("rank"),
                            .place = json.at("place"),
                            .silence = {},
                            .now_ns = json.at("now_ns"),
                            .phase = json.at("phase")};
    for (const Json& ring : json.at("rings")) {
      rank.rings.push_back({.name = ring.at("communicator"),
                            .members = ring.at("members").get<std::vector<int>>(),
                            .ordinal = ring.at("ordinal"),
                            .issued = ring.at("issued")});
      for (const Json& call : ring.at("calls")) {
        rank.rings.back().records.push_back(call_from(call));
      }
      for (const Json& wait : ring.at("waits")) {
        rank.rings.back().waits.push_back(wait_from(wait));
      }
    }
    return rank;
  } catch (const JsonError& error) {
    fail("{}: {}", source, error.what());
  }
}

// ---------------------------------------------------------------------------- State

RingDump::State RingDump::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void RingDump::add_rank(int rank, std::shared_ptr<const comm::CollectiveRings> rings) {
  const std::lock_guard lock(mutex_);
  state_.own.push_back({rank, std::move(rings)});
}

void RingDump::set_peers(std::vector<Peer> peers) {
  const std::lock_guard lock(mutex_);
  state_.peers = std::move(peers);
}

void RingDump::set_directory(std::filesystem::path directory) {
  const std::lock_guard lock(mutex_);
  state_.directory = std::move(directory);
}

std::filesystem::path RingDump::State::file_of(int rank) const {
  return directory / fmt::format("ring.rank{}.json", rank);
}

std::vector<comm::RankRings> RingDump::State::read_own() const {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  std::vector<comm::RankRings> out;
  for (const Own& o : own) {
    out.push_back({.rank = o.rank,
                   .place = fmt::format("{}, process {}", host, ::getpid()),
                   .silence = {},
                   .now_ns = trace_clock_ns(),
                   .phase = o.rings->phase().whole,
                   .rings = o.rings->snapshot()});
  }
  return out;
}

void RingDump::State::write(const std::vector<comm::RankRings>& ranks) const {
  for (const comm::RankRings& rank : ranks) leave(file_of(rank.rank), to_json(rank));
}

// ---------------------------------------------------------------------------- Asking

void RingDump::State::ask_peers() const {
  std::error_code ignored;
  for (const Peer& peer : peers) {
    if (!peer.reachable) continue;
    std::filesystem::remove(file_of(peer.rank), ignored);  // of an earlier occasion
    send_request(peer.process, WatchRequest::kWriteOwn);
  }
}

void RingDump::State::await_peers() const {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const auto has_answered = [&](const Peer& peer) {
    std::error_code ignored;
    return !peer.reachable || is_gone(peer) || is_stopped(peer) ||
           std::filesystem::exists(file_of(peer.rank), ignored);
  };
  while (!std::all_of(peers.begin(), peers.end(), has_answered) &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kLook);
  }
}

comm::RankRings RingDump::State::answer_of(const Peer& peer) const {
  comm::RankRings none = {.rank = peer.rank,
                          .place = fmt::format("{}, process {}", peer.host, peer.process),
                          .silence = why_silent(peer)};
  if (directory.empty()) {
    none.silence = "cannot answer: there is no run directory";
    return none;
  }
  std::error_code error;
  const auto written = std::filesystem::last_write_time(file_of(peer.rank), error);
  if (error || std::filesystem::file_time_type::clock::now() - written > kFresh) return none;
  return rings_from_json(read_file(file_of(peer.rank)), file_of(peer.rank).string());
}

void RingDump::write_own() const {
  const State s = state();
  if (!s.directory.empty()) s.write(s.read_own());
}

bool RingDump::worth_explaining() const { return comm::worth_explaining(state().read_own()); }

void RingDump::leave_end(int status, const std::string& line) const {
  const std::filesystem::path directory = state().directory;
  if (!directory.empty()) leave_end_note(directory, note_of_line(line, status));
}

std::string RingDump::collect() const {
  const State s = state();
  // Together with the peers, as well as it can be: read earlier, this rank would look like one that
  // the others wait for.
  if (!s.directory.empty()) s.ask_peers();
  std::vector<comm::RankRings> ranks = s.read_own();
  if (!s.directory.empty()) {
    s.write(ranks);
    s.await_peers();
  }
  for (const Peer& peer : s.peers) ranks.push_back(s.answer_of(peer));
  std::sort(ranks.begin(), ranks.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  const std::string text = comm::explain(ranks);
  if (!s.directory.empty()) leave(s.directory / "rings.txt", text);
  return text;
}

}  // namespace fsdp::tools
