// Collects the rings (the last collectives) of all ranks and explains them: after an error, if a
// collective has run, and when somebody sends SIGUSR2. A signal asks the other processes of this
// host (rank_watch.h). They answer with a file in the run directory, ring.rank<r>.json. Ranks of
// other hosts are not asked, but their files are read. Without a run directory only the ranks of
// this process can answer. Read next: comm/ring_report.h, the explanation.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <sys/types.h>

#include "comm/ring_report.h"

namespace fsdp::tools {

// Another process of the job, with one rank.
struct Peer {
  int rank = 0;
  std::string host;
  pid_t process = 0;
  bool reachable = false;  // on this host, and its process number means the same here
};

// Of a process of this host: "R", "T" (stopped), "Z", ...; "": there is none.
std::string process_state(pid_t process);

class RingDump {
 public:
  // Any thread may call these functions.
  void add_rank(int rank, std::shared_ptr<const comm::CollectiveRings> rings);  // of this process
  void set_peers(std::vector<Peer> peers);
  void set_directory(std::filesystem::path directory);
  void write_own() const;         // does nothing without a directory, or where it cannot write
  bool worth_explaining() const;  // see comm/ring_report.h; for the ranks of this process
  // The line that says why the job ends, for who looks at the run directory later (end_note.h).
  void leave_end(int status, const std::string& line) const;
  // Asks the peers, waits up to two seconds for their answers, and returns the explanation, which
  // is also written to rings.txt.
  std::string collect() const;

 private:
  struct Own {
    int rank;
    std::shared_ptr<const comm::CollectiveRings> rings;
  };
  struct State {
    std::vector<Own> own;
    std::vector<Peer> peers;
    std::filesystem::path directory;

    std::vector<comm::RankRings> read_own() const;
    void write(const std::vector<comm::RankRings>& ranks) const;
    void ask_peers() const;
    void await_peers() const;
    comm::RankRings answer_of(const Peer& peer) const;
    std::filesystem::path file_of(int rank) const;
  };
  State state() const;  // a copy: while one thread waits for answers, another may give one

  mutable std::mutex mutex_;
  State state_;
};

// ---- for tests ----
std::string to_json(const comm::RankRings& rank);
comm::RankRings rings_from_json(const std::string& text, const std::string& source);

}  // namespace fsdp::tools
