// The parts of a run in its timeline: steps, their forward, backward and update, evaluations. Each
// becomes a slice of a lane of its own, "step".
// Not here: what the streams ran (core/trace.h).
//
// [Note: when a phase runs] A phase is what the host issues from its begin to its end, and is drawn
// over the time in which the compute stream ran that: no stream has to carry marks. One that issued
// nothing there is left out.
#pragma once

#include <string>
#include <vector>

#include "core/trace.h"

namespace fsdp {

class TracePhases {
 public:
  explicit TracePhases(Trace& trace) : trace_(trace) {}  // which must outlive it

  size_t begin(std::string name);  // phases nest; returns what end() takes
  void end(size_t phase);
  // Records all phases in the trace. Once, when the streams have run what was issued.
  void record();

 private:
  struct Phase {
    std::string name;
    int64_t first;  // issued in the trace's order, as its events are
    int64_t last;
  };
  Trace& trace_;
  std::vector<Phase> phases_;
};

// A phase while alive; nothing without phases.
class PhaseScope {
 public:
  PhaseScope(TracePhases* phases, std::string name)
      : phases_(phases), phase_(phases ? phases->begin(std::move(name)) : 0) {}
  ~PhaseScope() {
    if (phases_) phases_->end(phase_);
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  TracePhases* phases_;
  size_t phase_;
};

// Bytes of host memory that the recording takes, at least: its lists may have room for more.
size_t bytes_of(const Trace& trace);

}  // namespace fsdp
