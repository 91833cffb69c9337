// What a rank has lately asked of its communicators: always recorded, a bounded ring for each, so
// that a job that hangs or fails can say who was where. Costs a lock and a small copy per call.
// Not here: what the rings of several ranks mean together (comm/ring_report.h).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/work_progress.h"

namespace fsdp::comm {

enum class CallState : uint8_t {
  kIssued,   // the host has enqueued it
  kStarted,  // the stream has come to it, or the host waits in it
  kDone,
};

// What the host of a rank is at: "step 12, backward", and the innermost part of it, "backward".
struct HostPhase {
  std::string whole = {};
  std::string innermost = {};  // without the number that counts it: of "step 12" it is "step"

  static HostPhase of(const std::vector<std::string>& open);  // the outermost first
};

struct CallRecord {
  int64_t sequence = 0;   // in its communicator, from 0
  std::string kind;       // "all_gather", ...; "exchange" for messages between hosts
  std::string unit = {};  // what the host was working on when it issued it; may be empty
  HostPhase phase = {};   // and what it was at
  std::string dtype = {};
  int64_t bytes = 0;  // of the full (unsharded) buffer
  CallState state = CallState::kIssued;
  int64_t issued_ns = 0;  // trace_clock_ns(); 0: not yet
  int64_t started_ns = 0;
  int64_t done_ns = 0;

  std::string what() const;  // "all_gather, unit blocks.3, 4096 bytes of f32"
};

// How long a rank was in the collectives of one communicator in one phase: it waited there for the
// last rank, and passed the data on. Which rank was the last: comm/straggler.h.
struct PhaseWait {
  HostPhase phase;
  int64_t calls = 0;
  int64_t wait_ns = 0;
  int64_t begin_ns = 0;  // trace_clock_ns() on the way into the first
  int64_t end_ns = 0;    // and out of the last
};

// One communicator as one rank sees it.
struct RingSnapshot {
  std::string name;                      // of the communicator
  std::vector<int> members;              // its ranks, as ranks of the job
  int ordinal = 0;                       // among communicators of the same name and members
  int64_t issued = 0;                    // calls so far
  std::vector<CallRecord> records = {};  // the last ones, oldest first
  std::vector<PhaseWait> waits = {};     // of the last phases of every kind, oldest first
};

struct CallTotal {
  int64_t calls = 0;
  int64_t bytes = 0;  // of the full (unsharded) buffers
};
using CallTotals = std::map<std::string, CallTotal>;  // by kind

// What the host is at; one object for all communicators of a rank. Any thread may call these.
class HostPhaseNote {
 public:
  void set(HostPhase phase) {
    const std::lock_guard lock(mutex_);
    phase_ = std::move(phase);
  }
  HostPhase get() const {
    const std::lock_guard lock(mutex_);
    return phase_;
  }

 private:
  mutable std::mutex mutex_;
  HostPhase phase_;
};

class CollectiveRing {
 public:
  static constexpr size_t kCapacity = 256;  // calls
  static constexpr size_t kKinds = 16;      // kinds of phases: those that came last
  static constexpr size_t kWaits = 32;      // phases of a kind whose waits are kept

  CollectiveRing(std::string name, std::vector<int> members, int ordinal,
                 std::shared_ptr<const HostPhaseNote> phase = nullptr);
  const std::string& name() const { return name_; }
  const std::vector<int>& members() const { return members_; }

  // Any thread may call these.
  int64_t issue(CallRecord call);  // returns its sequence number
  void start(int64_t sequence);
  void finish(int64_t sequence);
  RingSnapshot snapshot() const;
  std::optional<CallRecord> last() const;  // that was issued
  CallTotals totals() const;  // of all calls, also of those that the ring has forgotten
  // The order in which calls were issued, one text each, then one that stands for all calls, also
  // for those that the ring has forgotten.
  std::vector<std::string> order() const;

 private:
  CallRecord* find(int64_t sequence);  // null: forgotten
  void add_wait(const CallRecord& call);
  std::deque<PhaseWait>& waits_of(const std::string& kind);

  const std::string name_;
  const std::vector<int> members_;
  const int ordinal_;
  const std::shared_ptr<const HostPhaseNote> phase_;  // null: nobody says
  mutable std::mutex mutex_;                          // of what follows
  std::vector<CallRecord> records_;                   // call n at n % kCapacity
  int64_t issued_ = 0;
  uint64_t hash_ = 0;                                   // of all calls issued
  CallTotals totals_;                                   // kinds are names in the code
  std::map<std::string, std::deque<PhaseWait>> waits_;  // by the innermost phase; at most kKinds
};

// All rings of one rank. They outlive their communicators: who reports an error often does so after
// what threw it is gone.
class CollectiveRings {
 public:
  static constexpr size_t kCapacity = 64;  // beyond it, rings nobody writes to are dropped

  // `progress`: one object for the ranks of this process.
  explicit CollectiveRings(
      std::shared_ptr<WorkProgress> progress = std::make_shared<WorkProgress>())
      : progress_(std::move(progress)) {}

  std::shared_ptr<CollectiveRing> add(const std::string& name, std::vector<int> members);
  std::vector<RingSnapshot> snapshot() const;  // in the order in which they were added
  CallTotals totals() const;
  // What the host is at from now on.
  void set_phase(HostPhase phase) { phase_->set(std::move(phase)); }
  HostPhase phase() const { return phase_->get(); }
  const std::shared_ptr<WorkProgress>& progress() const { return progress_; }

 private:
  const std::shared_ptr<WorkProgress> progress_;
  const std::shared_ptr<HostPhaseNote> phase_ = std::make_shared<HostPhaseNote>();
  mutable std::mutex mutex_;                            // of what follows
  std::vector<std::shared_ptr<CollectiveRing>> rings_;  // kCapacity and those in use beyond it
  CallTotals dropped_;                                  // of rings that were dropped
  // How many, by name and members: of these there are as many as a session makes.
  std::map<std::pair<std::string, std::vector<int>>, int> added_;
};

}  // namespace fsdp::comm
