// Recording of calls.
#include "comm/collective_ring.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/rng.h"
#include "core/trace.h"

namespace fsdp::comm {
namespace {

void add(CallTotals& sum, const CallTotals& more) {
  for (const auto& [kind, total] : more) {
    sum[kind].calls += total.calls;
    sum[kind].bytes += total.bytes;
  }
}

}  // namespace

std::string CallRecord::what() const {
  std::string text = kind;
  if (!unit.empty()) text += ", unit " + unit;
  if (bytes > 0) text += fmt::format(", {} bytes of {}", bytes, dtype);
  return text;
}

CollectiveRing::CollectiveRing(std::string name, std::vector<int> members, int ordinal)
    : name_(std::move(name)), members_(std::move(members)), ordinal_(ordinal) {}

int64_t CollectiveRing::issue(CallRecord call) {
  call.issued_ns = trace_clock_ns();
  const std::lock_guard lock(mutex_);
  call.sequence = issued_++;
  hash_ = hash_name(
      fmt::format("{:x} {} {} {} {}", hash_, call.kind, call.unit, call.dtype, call.bytes));
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
  }
}

RingSnapshot CollectiveRing::snapshot() const {
  RingSnapshot out = {.name = name_, .members = members_, .ordinal = ordinal_};
  {
    const std::lock_guard lock(mutex_);
    out.issued = issued_;
    out.records = records_;
  }
  std::sort(out.records.begin(), out.records.end(),
            [](const CallRecord& a, const CallRecord& b) { return a.sequence < b.sequence; });
  return out;
}

CallTotals CollectiveRing::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

std::vector<std::string> CollectiveRing::order() const {
  std::vector<std::string> out;
  for (const CallRecord& record : snapshot().records) {
    out.push_back(fmt::format("{} #{}: {}", name_, record.sequence, record.what()));
  }
  const std::lock_guard lock(mutex_);
  out.push_back(fmt::format("{}: {} calls, hash {:016x}", name_, issued_, hash_));
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
  rings_.push_back(std::make_shared<CollectiveRing>(name, std::move(members), ordinal));
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
