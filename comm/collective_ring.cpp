// Recording of calls.
#include "comm/collective_ring.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "core/rng.h"
#include "core/trace.h"

namespace fsdp::comm {
namespace {

// Of texts, on the host, which waits for all ranks: none that makes another one gets far. A
// transport makes some of its own where the ranks of a group share a host, and none where they do
// not.
constexpr const char* kExchange = "exchange";
// Calls that order() names: of all that are remembered, where up to 16 are exchanges.
constexpr ptrdiff_t kInOrder = CollectiveRing::kCapacity - 16;

void add(CallTotals& sum, const CallTotals& more) {
  for (const auto& [kind, total] : more) {
    sum[kind].calls += total.calls;
    sum[kind].bytes += total.bytes;
  }
}

// Of "step 12": "step".
std::string without_number(const std::string& phase) {
  const size_t last = phase.find_last_not_of("0123456789");
  const bool counted = last != phase.npos && last + 1 < phase.size() && phase[last] == ' ';
  return counted ? phase.substr(0, last) : phase;
}

}  // namespace

HostPhase HostPhase::of(const std::vector<std::string>& open) {
  if (open.empty()) return {};
  return {.whole = fmt::format("{}", fmt::join(open, ", ")),
          .innermost = without_number(open.back())};
}

std::string CallRecord::what() const {
  std::string text = kind;
  if (!unit.empty()) text += ", unit " + unit;
  if (bytes > 0) text += fmt::format(", {} bytes of {}", bytes, dtype);
  return text;
}

CollectiveRing::CollectiveRing(std::string name, std::vector<int> members, int ordinal,
                               std::shared_ptr<const HostPhaseNote> phase)
    : name_(std::move(name)),
      members_(std::move(members)),
      ordinal_(ordinal),
      phase_(std::move(phase)) {}

int64_t CollectiveRing::issue(CallRecord call) {
  call.issued_ns = trace_clock_ns();
  if (phase_) call.phase = phase_->get();
  const std::lock_guard lock(mutex_);
  call.sequence = issued_++;
  if (call.kind != kExchange) {
    hash_ = hash_name(
        fmt::format("{:x} {} {} {} {}", hash_, call.kind, call.unit, call.dtype, call.bytes));
  }
  CallTotal& total = totals_[call.kind];
  ++total.calls;
  total.bytes += call.bytes;
  const size_t place = static_cast<size_t>(call.sequence) % kCapacity;
  if (place == records_.size()) {
    records_.push_back(std::move(call));
  } else {
    records_[place] = std::move(call);
  }
  return issued_ - 1;
}

CallRecord* CollectiveRing::find(int64_t sequence) {
  CallRecord& record = records_[static_cast<size_t>(sequence) % kCapacity];
  return record.sequence == sequence ? &record : nullptr;
}

void CollectiveRing::start(int64_t sequence) {
  const std::lock_guard lock(mutex_);
  if (CallRecord* record = find(sequence)) {
    record->state = CallState::kStarted;
    record->started_ns = trace_clock_ns();
  }
}

void CollectiveRing::finish(int64_t sequence) {
  const std::lock_guard lock(mutex_);
  if (CallRecord* record = find(sequence)) {
    record->state = CallState::kDone;
    record->done_ns = trace_clock_ns();
    add_wait(*record);
  }
}

// Messages between hosts are left out: the hosts run ahead of the streams, one more than another.
void CollectiveRing::add_wait(const CallRecord& call) {
  if (call.phase.innermost.empty() || call.dtype.empty() || call.started_ns == 0) return;
  std::deque<PhaseWait>& kept = waits_of(call.phase.innermost);
  if (kept.empty() || kept.back().phase.whole != call.phase.whole) {
    if (kept.size() == kWaits) kept.pop_front();
    kept.push_back({.phase = call.phase, .begin_ns = call.started_ns});
  }
  PhaseWait& wait = kept.back();
  ++wait.calls;
  wait.wait_ns += call.done_ns - call.started_ns;
  wait.end_ns = call.done_ns;
}

// However many names callers give their phases: the kind whose last wait is over longest goes.
std::deque<PhaseWait>& CollectiveRing::waits_of(const std::string& kind) {
  if (waits_.size() == kKinds && !waits_.contains(kind)) {
    waits_.erase(std::min_element(waits_.begin(), waits_.end(), [](const auto& a, const auto& b) {
      return a.second.back().end_ns < b.second.back().end_ns;
    }));
  }
  return waits_[kind];
}

RingSnapshot CollectiveRing::snapshot() const {
  RingSnapshot out = {.name = name_, .members = members_, .ordinal = ordinal_};
  {
    const std::lock_guard lock(mutex_);
    out.issued = issued_;
    out.records = records_;
    for (const auto& [phase, kept] : waits_) {
      out.waits.insert(out.waits.end(), kept.begin(), kept.end());
    }
  }
  std::sort(out.records.begin(), out.records.end(),
            [](const CallRecord& a, const CallRecord& b) { return a.sequence < b.sequence; });
  return out;
}

std::optional<CallRecord> CollectiveRing::last() const {
  const std::lock_guard lock(mutex_);
  if (issued_ == 0) return std::nullopt;
  return records_[static_cast<size_t>(issued_ - 1) % kCapacity];
}

CallTotals CollectiveRing::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

std::vector<std::string> CollectiveRing::order() const {
  std::vector<CallRecord> calls = snapshot().records;
  std::erase_if(calls, [](const CallRecord& call) { return call.kind == kExchange; });
  if (std::ssize(calls) > kInOrder) calls.erase(calls.begin(), calls.end() - kInOrder);
  const std::lock_guard lock(mutex_);
  const auto exchanges = totals_.find(kExchange);
  const int64_t all = issued_ - (exchanges == totals_.end() ? 0 : exchanges->second.calls);
  int64_t number = all - static_cast<int64_t>(calls.size());
  std::vector<std::string> out;
  for (const CallRecord& call : calls) {
    out.push_back(fmt::format("{} #{}: {}", name_, number++, call.what()));
  }
  out.push_back(fmt::format("{}: {} calls, hash {:016x}", name_, all, hash_));
  return out;
}

std::shared_ptr<CollectiveRing> CollectiveRings::add(const std::string& name,
                                                     std::vector<int> members) {
  const std::lock_guard lock(mutex_);
  const int ordinal = added_[{name, members}]++;
  const auto idle = std::find_if(rings_.begin(), rings_.end(),
                                 [](const auto& ring) { return ring.use_count() == 1; });
  if (rings_.size() >= kCapacity && idle != rings_.end()) {
    comm::add(dropped_, (*idle)->totals());
    rings_.erase(idle);
  }
  rings_.push_back(std::make_shared<CollectiveRing>(name, std::move(members), ordinal, phase_));
  return rings_.back();
}

std::vector<RingSnapshot> CollectiveRings::snapshot() const {
  const std::lock_guard lock(mutex_);
  std::vector<RingSnapshot> out;
  for (const auto& ring : rings_) out.push_back(ring->snapshot());
  return out;
}

CallTotals CollectiveRings::totals() const {
  const std::lock_guard lock(mutex_);
  CallTotals sum = dropped_;
  for (const auto& ring : rings_) comm::add(sum, ring->totals());
  return sum;
}

}  // namespace fsdp::comm
