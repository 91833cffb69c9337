// The barrier on a futex, its timeout, and abort.
#include "comm/host_group.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>
#include <thread>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/patience.h"

namespace fsdp::comm {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kReasonBytes = 1024;
// A peer that is only microseconds behind is met without a system call; longer would take the core
// from the compute threads.
constexpr int kSpins = 100;
constexpr std::chrono::seconds kPatience{5};

struct alignas(kCacheLine) Seat {  // written by its rank only
  std::atomic<uint64_t> meetings{0};
  std::atomic<uint32_t> visiting{0};  // 1: may be reading memory of the others
  Announcement said;
};

}  // namespace

// Followed in memory by one Seat per rank.
struct alignas(kCacheLine) GroupState {
  std::atomic<uint32_t> arrived{0};  // ranks in the meeting that is forming
  // Futex word. Bit 0: aborted; the others count meetings. One word, so that a sleeper misses
  // neither.
  alignas(kCacheLine) std::atomic<uint32_t> word{0};
  std::atomic<uint32_t> reason_taken{0};
  std::atomic<int32_t> aborted_by{-1};  // rank of the job; set with the reason
  char reason[kReasonBytes] = {};

  Seat* seats() { return reinterpret_cast<Seat*>(this + 1); }
};

namespace {

constexpr uint32_t kAborted = 1;
constexpr int kNoRank = -1;
constexpr uint32_t kMeeting = 2;
static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Not the private variant: sleeper and waker may be different processes.
long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr,
                 0);
}

void wake_all(std::atomic<uint32_t>& word) { futex(word, FUTEX_WAKE, INT_MAX, nullptr); }

void sleep_while(std::atomic<uint32_t>& word, uint32_t value, std::chrono::nanoseconds limit) {
  const timespec timeout = {static_cast<time_t>(limit.count() / 1000000000),
                            static_cast<long>(limit.count() % 1000000000)};
  futex(word, FUTEX_WAIT, value, &timeout);  // returns early for signals and lost races; we look
}

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

std::string describe(const Announcement& a) {
  std::string text = fmt::format("{} of {} {}", name_of(a.collective), a.numel, name_of(a.dtype));
  if (a.unit[0] != 0) text += fmt::format(", unit {},", a.unit);
  if (a.collective == Collective::kBroadcast) text += fmt::format(" from rank {}", a.root);
  if (a.op == ReduceOp::kAverage) text += " (average)";
  if (a.op == ReduceOp::kMax) text += " (max)";
  return text;
}

}  // namespace

void check_same_call(const std::vector<Announcement>& by_rank, const std::string& group,
                     const std::vector<int>& members) {
  const Announcement& first = by_rank[0];
  for (size_t r = 1; r < by_rank.size(); ++r) {
    const Announcement& other = by_rank[r];
    const bool same = other.collective == first.collective && other.op == first.op &&
                      other.dtype == first.dtype && other.root == first.root &&
                      other.numel == first.numel && std::strcmp(other.unit, first.unit) == 0;
    FSDP_CHECK(same,
               "{}: expected the same collective on every rank, got {} on rank {} and {} on "
               "rank {}",
               group, describe(first), members[0], describe(other), members[r]);
  }
}

size_t HostGroup::state_bytes(int size) {
  return sizeof(GroupState) + static_cast<size_t>(size) * sizeof(Seat);
}

GroupState* HostGroup::create_state(void* memory, int size) {
  auto* state = new (memory) GroupState();
  for (int r = 0; r < size; ++r) new (state->seats() + r) Seat();
  return state;
}

HostGroup::HostGroup(std::shared_ptr<GroupState> state, int rank, std::vector<int> members,
                     std::string name, std::chrono::milliseconds timeout, Heard heard,
                     std::shared_ptr<const WorkProgress> progress)
    : state_(std::move(state)),
      rank_(rank),
      size_(static_cast<int>(members.size())),
      members_(std::move(members)),
      name_(std::move(name)),
      timeout_(timeout),
      heard_(std::move(heard)),
      progress_(std::move(progress)) {}

void HostGroup::meet(std::string_view doing) {
  check_not_aborted(doing);
  GroupState& s = *state_;
  const uint32_t before = s.word.load(std::memory_order_acquire);  // cannot advance without us
  s.seats()[rank_].meetings.store(++meetings_, std::memory_order_relaxed);
  if (s.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size_)) {
    s.arrived.store(0, std::memory_order_relaxed);  // before the release below lets anybody return
    s.word.fetch_add(kMeeting, std::memory_order_acq_rel);
    wake_all(s.word);
  } else {
    sleep_until_met(before, doing);
  }
}

// A meeting that came about counts, even if the job was aborted meanwhile: the next one will throw.
void HostGroup::sleep_until_met(uint32_t before, std::string_view doing) {
  std::atomic<uint32_t>& word = state_->word;
  const auto met_or_aborted = [&] {
    const uint32_t now = word.load(std::memory_order_acquire);
    if (((now ^ before) & ~kAborted) != 0) return true;
    check_not_aborted(doing);
    return false;
  };
  for (int i = 0; i < kSpins; ++i) {
    if (met_or_aborted()) return;
    pause_cpu();
  }
  Patience patience(timeout_, progress_);
  while (!met_or_aborted()) {
    if (patience.over()) fail_of_timeout(doing);
    sleep_while(word, before, patience.until_look());
  }
}

std::vector<Announcement> HostGroup::enter(std::string_view doing, const Announcement& mine) {
  check_not_aborted(doing);  // the others may still be reading what we said before
  Seat* seats = state_->seats();
  seats[rank_].said = mine;
  meet(doing);
  std::vector<Announcement> said;
  said.reserve(static_cast<size_t>(size_));
  for (int r = 0; r < size_; ++r) said.push_back(seats[r].said);
  return said;
}

// Who met us on entry had set its flag before. Nobody waits inside a visit once it is aborted, so
// the flags fall as soon as the last copy is done; the bound is for a peer that was killed.
HostGroup::Visit::Visit(HostGroup& group) : group_(group) {
  group_.state_->seats()[group_.rank_].visiting.store(1, std::memory_order_relaxed);
}

HostGroup::Visit::~Visit() {
  Seat* seats = group_.state_->seats();
  seats[group_.rank_].visiting.store(0, std::memory_order_release);
  if ((group_.state_->word.load(std::memory_order_acquire) & kAborted) == 0) return;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (int r = 0; r < group_.size_; ++r) {
    while (seats[r].visiting.load(std::memory_order_acquire) != 0 &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

void HostGroup::fail_of_timeout(std::string_view doing) {
  std::vector<int> missing;
  for (int r = 0; r < size_; ++r) {
    const uint64_t meetings = state_->seats()[r].meetings.load(std::memory_order_relaxed);
    if (meetings < meetings_) missing.push_back(members_[static_cast<size_t>(r)]);
  }
  const std::string reason = fmt::format(
      "rank {} waited {} s for rank{} {} (group of {})", members_[static_cast<size_t>(rank_)],
      static_cast<double>(timeout_.count()) / 1000, missing.size() == 1 ? "" : "s",
      fmt::join(missing, ", "), size_);
  abort(reason);
  check_not_aborted(doing);  // throws our reason, or that of a rank that was first
  fail("[{}] {}: {}", doing, name_, reason);
}

void HostGroup::check_not_aborted(std::string_view doing) const {
  const std::optional<JobAbort> abort = aborted(*state_);
  if (!abort) return;
  if (heard_) heard_(*abort);
  fail("[{}] {}: {}", doing, name_, abort->reason);
}

bool HostGroup::abort(GroupState& state, const std::string& reason, int by) {
  if (state.reason_taken.exchange(1, std::memory_order_relaxed) != 0) {
    return state.aborted_by.load(std::memory_order_relaxed) == by;
  }
  state.aborted_by.store(by, std::memory_order_relaxed);
  const size_t length = std::min(reason.size(), kReasonBytes - 1);
  std::memcpy(state.reason, reason.data(), length);  // the rest is zero
  state.word.fetch_or(kAborted, std::memory_order_acq_rel);
  wake_all(state.word);
  return true;
}

std::optional<JobAbort> HostGroup::aborted(GroupState& state) {
  if ((state.word.load(std::memory_order_acquire) & kAborted) == 0) return std::nullopt;
  return JobAbort{state.reason, state.aborted_by.load(std::memory_order_relaxed)};
}

void AbortList::add(const std::shared_ptr<GroupState>& state) {
  std::lock_guard lock(mutex_);
  std::erase_if(groups_, [](const auto& group) { return group.expired(); });
  groups_.push_back(state);
  if (aborted_) HostGroup::abort(*state, aborted_->reason, aborted_->by);
}

// A rank that waits in one of the groups and gives up aborts only that group at first.
std::optional<JobAbort> AbortList::found(int rank) const {
  if (aborted_) return aborted_->by == rank ? std::nullopt : aborted_;
  if (heard_ && heard_->by != rank) return heard_;
  for (const auto& group : groups_) {
    const auto state = group.lock();
    auto abort = state ? HostGroup::aborted(*state) : std::nullopt;
    if (abort && abort->by != rank) return abort;
  }
  return std::nullopt;
}

void AbortList::hear(const JobAbort& abort) {
  std::lock_guard lock(mutex_);
  if (!heard_) heard_ = abort;
}

bool AbortList::abort(const std::string& reason, int by) {
  std::lock_guard lock(mutex_);
  const std::optional<JobAbort> another = found(by);
  if (!aborted_) {
    aborted_ = another ? *another : JobAbort{reason, by};
    for (const auto& group : groups_) {
      if (const auto state = group.lock()) {
        HostGroup::abort(*state, aborted_->reason, aborted_->by);
      }
    }
  }
  return !another;
}

std::optional<JobAbort> AbortList::aborted() const {
  std::lock_guard lock(mutex_);
  return aborted_ ? aborted_ : found(kNoRank);
}

void AbortList::check(std::string_view doing) const {
  std::lock_guard lock(mutex_);
  if (aborted_) fail("[{}] {}", doing, aborted_->reason);
}

}  // namespace fsdp::comm
