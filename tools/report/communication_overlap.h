// How much of the collectives' time was hidden behind compute: from the timeline of one rank, by
// subtracting intervals. Collectives on the compute stream itself hide behind nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/trace.h"

namespace fsdp::tools {

struct CollectiveTime {
  int64_t calls = 0;
  int64_t bytes = 0;
  int64_t time_ns = 0;
  int64_t exposed_ns = 0;  // while this rank computed nothing
};

struct CommunicationOverlap {
  std::map<std::string, CollectiveTime> by_kind;
  // By unit and kind; units in the order of their first collective, "" for collectives of no unit.
  std::vector<std::pair<std::string, std::map<std::string, CollectiveTime>>> by_unit;
  int64_t compute_ns = 0;  // kernels on the compute stream
  int64_t exposed_ns = 0;  // some collective ran and no kernel: each moment once
};
inline constexpr const char* kComputeLane = "compute";
bool is_collective(const TraceEvent& event);
CommunicationOverlap measure_overlap(const std::vector<TraceEvent>& events);

// A table of several lines, of what train() did before it saved the model.
std::string format_overlap(const CommunicationOverlap& overlap);

// ---- intervals ----
struct Interval {
  int64_t begin;
  int64_t end;
  bool operator==(const Interval&) const = default;
};
// Sorted, not touching, none empty.
std::vector<Interval> merged(std::vector<Interval> intervals);
int64_t length(const std::vector<Interval>& intervals);
// Parts of `interval` in none of `others`, which are merged.
std::vector<Interval> parts_outside(Interval interval, const std::vector<Interval>& others);
// When kernels of the compute stream ran, and collectives of any stream; both merged.
struct BusyTimes {
  std::vector<Interval> compute, collectives;
};
BusyTimes busy_times(const std::vector<TraceEvent>& events);

}  // namespace fsdp::tools
