// See [Note: when a phase runs].
#include "core/trace_phases.h"

#include <algorithm>
#include <exception>
#include <limits>

namespace fsdp {
namespace {

constexpr size_t kNotRecorded = std::numeric_limits<size_t>::max();

}  // namespace

size_t TracePhases::begin(std::string name) {
  open_.push_back(name);
  if (marks_) marks_->begin_phase(name);
  if (listener_) listener_(open_);
  if (!trace_ || !recorded_) return kNotRecorded;
  phases_.push_back(
      {std::move(name), trace_->next_sequence(), std::numeric_limits<int64_t>::max()});
  return phases_.size() - 1;
}

// Of an error the phase stays with the listener: who reports it asks later.
void TracePhases::end(size_t phase) {
  open_.pop_back();
  if (marks_) marks_->end_phase();
  if (listener_ && std::uncaught_exceptions() == 0) listener_(open_);
  if (phase != kNotRecorded) phases_.at(phase).last = trace_->next_sequence();
}

void TracePhases::set_marks(PhaseMarks* marks) {
  marks_ = marks;
  for (const std::string& name : open_) {
    if (marks_) marks_->begin_phase(name);
  }
}

std::string TracePhases::innermost() const { return open_.empty() ? "" : open_.back(); }

void TracePhases::record() {
  if (!trace_) return;
  const std::vector<TraceEvent> issued = trace_->events();
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
    trace_->record({.name = phase.name,
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
