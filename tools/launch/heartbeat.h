// The processes of a job tell each other that they live and what they are at, from the thread of
// rank_watch.h, over sockets of their own (UDP): also when MPI waits, and when the launcher knows
// nothing.
// Every rank beats to rank 0 and to the ranks of its host, and watches the ranks it beats to. Not
// here: what is done about a silent rank (tools/launch/job_end.h), a process that has ended, which
// its host notices at once (rank_watch.h).
// Until the processes can talk to each other (MPI_Init, which waits for all of them and for ever),
// a StartWatch ends the job when a process of this host is stopped, or when it takes too long.
//
// [Note: who is silent] A rank that was not heard of for the whole limit. Only a rank that has run
// all the time may say so: one whose own beats were late was stopped itself, or starved, and gives
// everybody the whole limit again. So a job that is suspended and continued as a whole lives on. A
// process of this host that runs, but does not beat, gets twice the limit. A rank of another host
// is watched from its first beat on: a firewall may leave none through.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "comm/patience.h"
#include "comm/work_progress.h"
#include "tools/launch/network_cards.h"
#include "tools/launch/rank_watch.h"
#include "tools/launch/ring_dump.h"

namespace fsdp::tools {

// The times of a few peers; see [Note: who is silent].
class SilenceWatch {
 public:
  using Clock = std::chrono::steady_clock;
  SilenceWatch(Clock::duration limit, size_t peers, Clock::time_point now);

  Clock::duration beat() const { return beat_; }  // between two calls of tick()
  void tick(Clock::time_point now);
  void heard(size_t peer, Clock::time_point now) { heard_[peer] = now; }
  double silence(size_t peer, Clock::time_point now) const;  // 1: the whole limit

 private:
  Clock::duration limit_, beat_;
  Clock::time_point ticked_;
  std::vector<Clock::time_point> heard_;
};

class Heartbeat {
 public:
  // Opens the socket; where there is no network it is never heard of. `cards`: whose addresses
  // others may use, IPv4. The watch outlives this, or is stopped before.
  Heartbeat(RankWatch& watch, const std::vector<NetworkCard>& cards);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Where this process can be reached: for start() of the others.
  std::string card() const;

  struct Job {
    uint64_t key = 0;  // of all processes of the job, and of no other
    int rank = 0;
    std::vector<Peer> peers;
    std::vector<std::string> cards;  // by rank
    std::chrono::milliseconds limit{0};
  };
  struct Actions {
    std::shared_ptr<comm::WorkProgress> progress;  // this rank's goes out, the others' comes in
    std::function<std::string()> at;               // "step 12, backward, unit blocks.3"; any thread
    // One of the two, once, apart from the watch's thread, which goes on beating.
    std::function<void(const std::vector<int>& ranks)> silent;
    std::function<void(const std::string& reason)> told;  // by another rank, which ends the job
    std::function<void(const std::string& text)> note;
  };
  void start(Job job, Actions actions);
  // The job is at its end: who is silent now has gone.
  void stop_watching();
  // Tells all that this rank beats to why the job ends, now and in every beat.
  void tell(const std::string& reason);
  std::string last_of(int rank) const;  // what it said it was at; "": it said nothing

 private:
  struct Address {
    uint32_t host = 0;  // IPv4, in the order of the network
    uint16_t port = 0;  // also
  };
  struct Neighbour {
    Peer peer;
    std::vector<Address> addresses;
    Address known = {};  // it was heard from there
    bool heard = false;
    std::string at;
    uint64_t progress = 0;
  };
  void read_all();
  void take(std::string_view datagram, Address from);
  void beat();
  void send(const Neighbour& neighbour, bool everywhere, const std::string& text) const;
  void look();
  bool is_silent(size_t neighbour, double part) const;
  void note_unheard();

  RankWatch& watch_;
  std::vector<uint32_t> own_;  // addresses, in the order of the network
  int socket_ = -1;
  int timer_ = -1;        // -1: it does not beat
  bool watched_ = false;  // the socket is the watch's
  Job job_;
  Actions actions_;
  mutable std::mutex mutex_;  // of what follows
  std::vector<Neighbour> neighbours_;
  std::string reason_;  // not empty: the job ends
  bool watching_ = true;
  bool acted_ = false;
  SilenceWatch silence_{std::chrono::seconds(1), 0, {}};
  std::chrono::steady_clock::time_point started_;
  bool noted_ = false;
};

class StartWatch {
 public:
  struct Limits {
    std::chrono::milliseconds silence{0};  // of a stopped process; 0: not looked at
    std::chrono::milliseconds start{0};    // of all
    // How long a signal may wait (SignalsWait) for ranks that perhaps never come.
    std::chrono::milliseconds signal{3000};
  };
  using Failed = std::function<void(const std::string& reason)>;
  // `failed` is called once, on the thread of the watch.
  StartWatch(RankWatch& watch, Limits limits, Failed failed);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void look();
  std::string reason_to_end();  // "": none

  RankWatch& watch_;
  Limits limits_;
  Failed failed_;  // null: it was called
  comm::Patience patience_;
  SilenceWatch silence_;
  pid_t stopped_ = 0;                                           // 0: none is
  std::optional<std::chrono::steady_clock::time_point> asked_;  // since when a signal waits
  int timer_ = -1;
};

// ---- for tests ----
// Processes of the same program and parent, without this one: the other ranks of this host.
std::vector<pid_t> sibling_processes();

}  // namespace fsdp::tools
