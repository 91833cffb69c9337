// Intervals of a lane, and the table.
#include "tools/report/communication_overlap.h"

#include <algorithm>

#include <fmt/format.h>

#include "comm/communicator.h"

namespace fsdp::tools {
namespace {

void add(CollectiveTime& sum, const TraceEvent& event, int64_t exposed_ns) {
  ++sum.calls;
  sum.bytes += event.bytes;
  sum.time_ns += event.end_ns - event.begin_ns;
  sum.exposed_ns += exposed_ns;
}

std::map<std::string, CollectiveTime>& unit_row(CommunicationOverlap& overlap,
                                                const std::string& unit) {
  for (auto& [name, kinds] : overlap.by_unit) {
    if (name == unit) return kinds;
  }
  return overlap.by_unit.emplace_back(unit, std::map<std::string, CollectiveTime>()).second;
}

std::string row(const std::string& name, const CollectiveTime& t) {
  return fmt::format("  {:<32}{:>8}{:>12.2f}{:>12.1f}{:>12.1f}\n", name, t.calls,
                     static_cast<double>(t.bytes) / (1 << 20), static_cast<double>(t.time_ns) / 1e6,
                     static_cast<double>(t.exposed_ns) / 1e6);
}

}  // namespace

bool is_collective(const TraceEvent& event) {
  for (size_t i = 0; i < comm::kCollectives; ++i) {
    if (event.name == comm::name_of(static_cast<comm::Collective>(i))) return true;
  }
  return false;
}

std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& i) { return i.end <= i.begin; });
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> out;
  for (const Interval& i : intervals) {
    if (out.empty() || i.begin > out.back().end) {
      out.push_back(i);
    } else {
      out.back().end = std::max(out.back().end, i.end);
    }
  }
  return out;
}

int64_t length(const std::vector<Interval>& intervals) {
  int64_t sum = 0;
  for (const Interval& i : intervals) sum += i.end - i.begin;
  return sum;
}

std::vector<Interval> parts_outside(Interval interval, const std::vector<Interval>& others) {
  std::vector<Interval> out;
  auto other = std::partition_point(others.begin(), others.end(),
                                    [&](const Interval& o) { return o.end <= interval.begin; });
  for (; other != others.end() && other->begin < interval.end; ++other) {
    if (other->begin > interval.begin) out.push_back({interval.begin, other->begin});
    interval.begin = other->end;
  }
  if (interval.end > interval.begin) out.push_back(interval);
  return out;
}

BusyTimes busy_times(const std::vector<TraceEvent>& events) {
  BusyTimes out;
  for (const TraceEvent& e : events) {
    if (is_collective(e)) {
      out.collectives.push_back({e.begin_ns, e.end_ns});
    } else if (e.lane == kComputeLane) {
      out.compute.push_back({e.begin_ns, e.end_ns});
    }
  }
  return {merged(std::move(out.compute)), merged(std::move(out.collectives))};
}

CommunicationOverlap measure_overlap(const std::vector<TraceEvent>& events) {
  const auto [compute, collectives] = busy_times(events);
  const auto exposed_in = [&compute = compute](Interval i) {
    return length(parts_outside(i, compute));
  };
  CommunicationOverlap out;
  out.compute_ns = length(compute);
  for (const Interval& i : collectives) out.exposed_ns += exposed_in(i);
  for (const TraceEvent& e : events) {
    if (!is_collective(e)) continue;
    const int64_t exposed = exposed_in({e.begin_ns, e.end_ns});
    add(out.by_kind[e.name], e, exposed);
    add(unit_row(out, e.scope)[e.name], e, exposed);
  }
  return out;
}

std::string format_overlap(const CommunicationOverlap& overlap) {
  std::string out =
      "collectives of rank 0 in training and validation (the trace continues: saving, sample)\n";
  out += fmt::format("  {:<32}{:>8}{:>12}{:>12}{:>12}\n", "", "calls", "MiB", "ms", "exposed ms");
  for (const auto& [kind, time] : overlap.by_kind) out += row(kind, time);
  out += fmt::format("  {:<52}{:>12}{:>12.1f}   next to {:.1f} ms of compute\n",
                     "exposed, each moment once", "", static_cast<double>(overlap.exposed_ns) / 1e6,
                     static_cast<double>(overlap.compute_ns) / 1e6);
  for (const auto& [unit, kinds] : overlap.by_unit) {
    for (const auto& [kind, time] : kinds) {
      out += row((unit.empty() ? "(no unit)" : unit) + " " + kind, time);
    }
  }
  return out;
}

}  // namespace fsdp::tools
