// How ranks that see one piece of memory (threads of a process, or processes of a host that map the
// same pages) meet: a barrier whose waits sleep, what each rank says on entering a collective, a
// timeout that names who is missing, and an abort that wakes everybody.
// Not here: data movement (comm/host_collectives.h), where the memory comes from (the transports).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/work_progress.h"

namespace fsdp::comm {

constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(10);

// What a rank says when it enters a collective. The first five and the unit must be the same on all
// ranks.
struct Announcement {
  Collective collective = Collective::kAllGather;
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kF32;
  int32_t root = 0;
  int64_t numel = 0;    // of the full (unsharded) buffer
  uint64_t window = 0;  // which window of the group holds the buffer; 0: peers cannot reach it
  uint64_t offset = 0;  // of the buffer in it, bytes
  char unit[40] = {};   // of the model, or the end of its name; zero-terminated
};

// Error, the same on every rank, when the ranks are not in the same collective.
// `members`: the group's ranks as ranks of the job.
void check_same_call(const std::vector<Announcement>& by_rank, const std::string& group,
                     const std::vector<int>& members);

struct GroupState;  // lies in the shared memory; zero-filled memory is not yet one

struct JobAbort {
  std::string reason;
  int by = -1;  // rank of the job
};

class HostGroup {
 public:
  static size_t state_bytes(int size);
  // Made by one rank before the others use it. `memory`: aligned to 64, state_bytes(size) long.
  static GroupState* create_state(void* memory, int size);

  using Heard = std::function<void(const JobAbort& abort)>;
  // `rank`: in the group. `members`: its ranks as ranks of the job, by which errors call them.
  // `heard` is called when a wait here ends by an abort. `timeout`: without `progress` of any rank.
  HostGroup(std::shared_ptr<GroupState> state, int rank, std::vector<int> members, std::string name,
            std::chrono::milliseconds timeout, Heard heard = {},
            std::shared_ptr<const WorkProgress> progress = nullptr);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::vector<int>& members() const { return members_; }
  const std::string& name() const { return name_; }

  // Returns when every rank has called it as often as this one. Everything a rank wrote before is
  // visible to all after. `doing` names the collective in errors. One thread of a rank at a time.
  void meet(std::string_view doing);
  // meet() that also tells the others `mine`; returns what all say, by rank. The next meet() must
  // follow before the next enter(): until then the others may still read.
  std::vector<Announcement> enter(std::string_view doing, const Announcement& mine);
  void check_not_aborted(std::string_view doing) const;

  // Spans all meetings of one collective. When an abort ends it early, this rank leaves only after
  // its peers have stopped reading its memory, which it may free next.
  class Visit {
   public:
    explicit Visit(HostGroup& group);
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    HostGroup& group_;
  };

  // From any thread: every present and later meet() on every rank throws Error(reason). False when
  // another rank aborted the group before: then that reason stays.
  static bool abort(GroupState& state, const std::string& reason, int by);
  bool abort(const std::string& reason) {
    return abort(*state_, reason, members_[static_cast<size_t>(rank_)]);
  }
  static std::optional<JobAbort> aborted(GroupState& state);

 private:
  void sleep_until_met(uint32_t before, std::string_view doing);
  [[noreturn]] void fail_of_timeout(std::string_view doing);

  std::shared_ptr<GroupState> state_;
  int rank_;
  int size_;
  std::vector<int> members_;
  std::string name_;
  std::chrono::milliseconds timeout_;
  Heard heard_;
  std::shared_ptr<const WorkProgress> progress_;
  uint64_t meetings_ = 0;
};

// All groups of one job that this process takes part in: who gives up, gives up in all of them.
class AbortList {
 public:
  void add(const std::shared_ptr<GroupState>& state);  // aborted at once if the job already is
  // False when another rank has aborted one of the groups before: then its reason goes to all.
  bool abort(const std::string& reason, int by);
  // A wait in one of the groups has ended by this abort. The group may be gone when somebody asks.
  void hear(const JobAbort& abort);
  void check(std::string_view doing) const;  // throws Error(reason) once aborted in this process
  std::optional<JobAbort> aborted() const;   // by any rank, in any of the groups

 private:
  std::optional<JobAbort> found(int rank) const;  // by another rank than this one, locked
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<GroupState>> groups_;  // add() drops those that are gone
  std::optional<JobAbort> heard_;                  // the first
  std::optional<JobAbort> aborted_;                // all groups
};

}  // namespace fsdp::comm
