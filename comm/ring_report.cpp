// Matching of calls across ranks: two ranks mean the same call by the same number in the
// communicator of the same name, members and ordinal.
#include "comm/ring_report.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "comm/straggler.h"

namespace fsdp::comm {
namespace {

// Ranks are not asked at the same moment: a shorter wait may be over for the rank waited for.
constexpr int64_t kLong = 1'000'000'000;  // ns

const RankRings* find_rank(const std::vector<RankRings>& ranks, int rank) {
  const auto found =
      std::find_if(ranks.begin(), ranks.end(), [&](const RankRings& r) { return r.rank == rank; });
  return found == ranks.end() || !found->silence.empty() ? nullptr : &*found;
}

const RingSnapshot* find_ring(const RankRings& rank, const RingSnapshot& like) {
  const auto found = std::find_if(rank.rings.begin(), rank.rings.end(), [&](const auto& ring) {
    return ring.name == like.name && ring.members == like.members && ring.ordinal == like.ordinal;
  });
  return found == rank.rings.end() ? nullptr : &*found;
}

const CallRecord* find_call(const RingSnapshot& ring, int64_t sequence) {
  if (ring.records.empty() || sequence < ring.records[0].sequence) return nullptr;
  const auto index = static_cast<size_t>(sequence - ring.records[0].sequence);
  return index < ring.records.size() ? &ring.records[index] : nullptr;
}

// The first call that is not done; null when all are.
const CallRecord* pending_call(const RingSnapshot& ring) {
  const auto found = std::find_if(ring.records.begin(), ring.records.end(),
                                  [](const CallRecord& c) { return c.state != CallState::kDone; });
  return found == ring.records.end() ? nullptr : &*found;
}

std::string age(int64_t since_ns, int64_t now_ns) {
  return fmt::format("{:.1f} s ago", static_cast<double>(now_ns - since_ns) / 1e9);
}

// Why `member` has not joined this call; empty when it has.
std::string absence(const std::vector<RankRings>& ranks, int member, const RingSnapshot& ring,
                    int64_t sequence) {
  const RankRings* other = find_rank(ranks, member);
  if (!other) return "not heard of";
  const RingSnapshot* theirs = find_ring(*other, ring);
  if (!theirs || theirs->issued <= sequence) return "has not issued it";
  const CallRecord* call = find_call(*theirs, sequence);
  return call && call->state == CallState::kIssued ? "its stream has not come to it" : "";
}

class Report {
 public:
  explicit Report(const std::vector<RankRings>& ranks) : ranks_(ranks) {}

  std::string text() {
    std::string out;
    for (const RankRings& rank : ranks_) out += describe(rank);
    return fmt::format("the last collectives of {} ranks\n", ranks_.size()) + out + differences() +
           verdict() + stragglers();
  }

 private:
  std::string describe(const RankRings& rank) {
    std::string out = fmt::format("  rank {} ({})", rank.rank, rank.place);
    if (!rank.silence.empty()) return out + ": " + rank.silence + "\n";
    if (!rank.phase.empty()) out += " in " + rank.phase;
    std::string waits;
    for (const RingSnapshot& ring : rank.rings) waits += describe_pending(rank, ring);
    if (!waits.empty()) return out + "\n" + waits;
    return out + ": nothing under way; " + describe_last(rank) + "\n";
  }

  std::string describe_pending(const RankRings& rank, const RingSnapshot& ring) {
    const CallRecord* call = pending_call(ring);
    if (!call) return "";
    std::string out = fmt::format("    {} #{} {}: ", ring.name, call->sequence, call->what());
    if (call->state == CallState::kIssued) {
      return out + "issued " + age(call->issued_ns, rank.now_ns) +
             ", its stream has not come to it\n";
    }
    out += "started " + age(call->started_ns, rank.now_ns);
    std::vector<std::string> absent;
    for (const int member : ring.members) {
      const std::string why =
          member == rank.rank ? "" : absence(ranks_, member, ring, call->sequence);
      if (why.empty()) continue;
      absent.push_back(fmt::format("rank {} ({})", member, why));
      if (rank.now_ns - call->started_ns < kLong) continue;
      waiting_.insert(rank.rank);
      awaited_.insert(member);
    }
    if (absent.empty()) return out + "; all ranks are in it\n";
    const bool is_long = rank.now_ns - call->started_ns >= kLong;
    return out + fmt::format("; {} {}\n", is_long ? "waits for" : "not seen in it when asked:",
                             fmt::join(absent, ", "));
  }

  static std::string describe_last(const RankRings& rank) {
    const CallRecord* last = nullptr;
    std::string name;
    for (const RingSnapshot& ring : rank.rings) {
      if (ring.records.empty() || (last && ring.records.back().done_ns <= last->done_ns)) continue;
      last = &ring.records.back();
      name = ring.name;
    }
    if (!last) return "no collective so far";
    return fmt::format("last: {} #{} {}, done {}", name, last->sequence, last->what(),
                       age(last->done_ns, rank.now_ns));
  }

  // The first call of each communicator that two ranks remember differently.
  std::string differences() const {
    std::string out;
    for (const RankRings& rank : ranks_) {
      for (const RingSnapshot& ring : rank.rings) {
        const RankRings* first = find_rank(ranks_, ring.members.empty() ? -1 : ring.members[0]);
        const RingSnapshot* theirs = first && first != &rank ? find_ring(*first, ring) : nullptr;
        if (!theirs) continue;
        for (const CallRecord& call : ring.records) {
          const CallRecord* other = find_call(*theirs, call.sequence);
          if (!other || other->what() == call.what()) continue;
          out += fmt::format("  out of step: {} #{} is {} on rank {}, {} on rank {}\n", ring.name,
                             call.sequence, other->what(), first->rank, call.what(), rank.rank);
          break;
        }
      }
    }
    return out;
  }

  std::string verdict() const {
    if (waiting_.empty()) return "";
    std::vector<int> first;
    std::set_difference(awaited_.begin(), awaited_.end(), waiting_.begin(), waiting_.end(),
                        std::back_inserter(first));
    if (first.empty()) return "  every rank waits for another: they are out of step\n";
    return fmt::format(
        "  look first at rank{} {}: others wait for {}\n", first.size() == 1 ? "" : "s",
        fmt::join(first, ", "),
        first.size() == 1 ? "it, and it waits for nobody" : "them, and they wait for nobody");
  }

  std::string stragglers() const {
    std::string out;
    for (const Straggler& s : find_stragglers(ranks_)) out += "  " + comm::describe(s) + "\n";
    return out;
  }

  const std::vector<RankRings>& ranks_;
  std::set<int> waiting_;  // for another rank, for long
  std::set<int> awaited_;
};

}  // namespace

bool worth_explaining(const std::vector<RankRings>& ranks) {
  for (const RankRings& rank : ranks) {
    for (const RingSnapshot& ring : rank.rings) {
      const CallRecord* call = pending_call(ring);
      if (call && rank.now_ns - call->issued_ns >= kLong) return true;
      const auto of_tensor = [](const CallRecord& c) { return !c.dtype.empty(); };  // no message
      if (std::any_of(ring.records.begin(), ring.records.end(), of_tensor)) return true;
    }
  }
  return false;
}

std::string explain(const std::vector<RankRings>& ranks) { return Report(ranks).text(); }

}  // namespace fsdp::comm
