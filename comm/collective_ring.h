// What a rank has lately asked of its communicators: always recorded, a bounded ring for each, so
// that a job that hangs or fails can say who was where. Costs a lock and a small copy per call.
// Not here: what the rings of several ranks mean together (comm/ring_report.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fsdp::comm {

enum class CallState : uint8_t {
  kIssued,   // the host has enqueued it
  kStarted,  // the stream has come to it, or the host waits in it
  kDone,
};

struct CallRecord {
  int64_t sequence = 0;  // in its communicator, from 0
  std::string kind;      // "all_gather", ...; "exchange" for messages between hosts
  std::string unit = {};  // what the host was working on when it issued it; may be empty
  std::string dtype = {};
  int64_t bytes = 0;  // of the full (unsharded) buffer
  CallState state = CallState::kIssued;
  int64_t issued_ns = 0;  // trace_clock_ns(); 0: not yet
  int64_t started_ns = 0;
  int64_t done_ns = 0;

  std::string what() const;  // "all_gather, unit blocks.3, 4096 bytes of f32"
};

// One communicator as one rank sees it.
struct RingSnapshot {
  std::string name;                      // of the communicator
  std::vector<int> members;              // its ranks, as ranks of the job
  int ordinal = 0;                       // among communicators of the same name and members
  int64_t issued = 0;                    // calls so far
  std::vector<CallRecord> records = {};  // the last ones, oldest first
};

struct CallTotal {
  int64_t calls = 0;
  int64_t bytes = 0;  // of the full (unsharded) buffers
};
using CallTotals = std::map<std::string, CallTotal>;  // by kind

class CollectiveRing {
 public:
  static constexpr size_t kCapacity = 256;  // calls

  CollectiveRing(std::string name, std::vector<int> members, int ordinal);
  const std::string& name() const { return name_; }
  const std::vector<int>& members() const { return members_; }

  // Any thread may call these.
  int64_t issue(CallRecord call);  // returns its sequence number
  void start(int64_t sequence);
  void finish(int64_t sequence);
  RingSnapshot snapshot() const;
  CallTotals totals() const;  // of all calls, also of those that the ring has forgotten
  // The order in which calls were issued, one text each, then one that stands for all calls, also
  // for those that the ring has forgotten.
  std::vector<std::string> order() const;

 private:
  CallRecord* find(int64_t sequence);  // null: forgotten

  const std::string name_;
  const std::vector<int> members_;
  const int ordinal_;
  mutable std::mutex mutex_;         // of what follows
  std::vector<CallRecord> records_;  // call n at n % kCapacity
  int64_t issued_ = 0;
  uint64_t hash_ = 0;  // of all calls issued
  CallTotals totals_;
};

// All rings of one rank. They outlive their communicators: who reports an error often does so after
// what threw it is gone.
class CollectiveRings {
 public:
  static constexpr size_t kCapacity = 64;  // beyond it, rings nobody writes to are dropped

  std::shared_ptr<CollectiveRing> add(const std::string& name, std::vector<int> members);
  std::vector<RingSnapshot> snapshot() const;  // in the order in which they were added
  CallTotals totals() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<CollectiveRing>> rings_;
  CallTotals dropped_;  // of rings that were dropped
  std::map<std::pair<std::string, std::vector<int>>, int> added_;  // how many, by name and members
};

}  // namespace fsdp::comm
