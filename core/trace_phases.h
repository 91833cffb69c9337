// The phases of a run: steps, with their forward, backward and update, and evaluations. Who asks is
// told of every change, but of no end by an exception. In a timeline each phase becomes a slice of
// the lane "step". Not here: what the streams ran (core/trace.h).
//
// [Note: when a phase runs] A phase consists of the work that the host issues between begin() and
// end(). Its slice covers the time in which the compute stream ran this work, so no stream has to
// carry marks. A phase that issued nothing to the compute stream is left out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/trace.h"

namespace fsdp {

// Who is told of every begin and every end, by an exception too: a device's profiler.
class PhaseMarks {
 public:
  virtual ~PhaseMarks() = default;
  virtual void begin_phase(const std::string& name) = 0;
  virtual void end_phase() = 0;  // of the one that began last
};

class TracePhases {
 public:
  // Of all phases that have begun and not ended, the outermost first.
  using Listener = std::function<void(const std::vector<std::string>& open)>;
  explicit TracePhases(Trace& trace) : trace_(&trace) {}  // which must outlive it
  // `trace`: null: no timeline.
  TracePhases(Trace* trace, Listener listener) : trace_(trace), listener_(std::move(listener)) {}

  // Returns the argument for end(). Phases may nest; what began last ends first.
  size_t begin(std::string name);
  void end(size_t phase);
  // From now on, and of the phases that have begun; null: nobody. It must outlive them.
  void set_marks(PhaseMarks* marks);
  std::string innermost() const;  // of those that have begun and not ended; "": none
  // Phases that begin from now on are none of the timeline.
  void end_timeline() { recorded_ = false; }
  // Records all phases in the trace. Call it once, after the streams have run all issued work.
  void record();

 private:
  struct Phase {
    std::string name;
    int64_t first;  // sequence numbers of the trace, as its events have
    int64_t last;
  };
  Trace* trace_ = nullptr;
  Listener listener_;
  PhaseMarks* marks_ = nullptr;
  std::vector<std::string> open_;
  std::vector<Phase> phases_;  // of the trace, until end_timeline()
  bool recorded_ = true;
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

// Bytes of host memory that the events and samples take. The lists themselves may hold more memory.
size_t bytes_of(const Trace& trace);

}  // namespace fsdp
