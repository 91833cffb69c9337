// See [Note: when a phase runs].
#include "core/trace_phases.h"

#include <algorithm>
#include <limits>

namespace fsdp {

size_t TracePhases::begin(std::string name) {
  const int64_t first = trace_.next_sequence();
  phases_.push_back({std::move(name), first, std::numeric_limits<int64_t>::max()});
  return phases_.size() - 1;
}

void TracePhases::end(size_t phase) { phases_.at(phase).last = trace_.next_sequence(); }

std::string TracePhases::innermost() const {
  const auto open = std::find_if(phases_.rbegin(), phases_.rend(), [](const Phase& p) {
    return p.last == std::numeric_limits<int64_t>::max();
  });
  return open == phases_.rend() ? "" : open->name;
}

void TracePhases::record() {
  const std::vector<TraceEvent> issued = trace_.events();
  for (const Phase& phase : phases_) {
    auto event = std::partition_point(issued.begin(), issued.end(), [&](const TraceEvent& e) {
      return e.sequence < phase.first;
    });
    int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
    for (; event != issued.end() && event->sequence < phase.last; ++event) {
      if (event->lane != "compute") continue;
      begin = std::min(begin, event->begin_ns);
      end = std::max(end, event->end_ns);
    }
    if (end == 0) continue;
    trace_.record({.name = phase.name,
                   .scope = "",
                   .lane = "step",
                   .enqueued_ns = begin,
                   .begin_ns = begin,
                   .end_ns = end,
                   .sequence = phase.first});
  }
}

size_t bytes_of(const Trace& trace) {
  const auto outside = [](const std::string& text) {  // what does not fit into the string itself
    return text.capacity() > std::string().capacity() ? text.capacity() + 1 : 0;
  };
  size_t sum = 0;
  for (const TraceEvent& e : trace.events()) {
    sum += sizeof e + outside(e.name) + outside(e.scope) + outside(e.lane);
  }
  for (const TraceSample& s : trace.samples()) sum += sizeof s + outside(s.curve);
  return sum;
}

}  // namespace fsdp
