// Timeline of what ran where: one lane per stream, and curves of live memory, written as
// Chrome/Perfetto JSON. Off by default; a backend records into it when one is attached.
//
// [Note: when memory is live] Memory is counted when the host issues an allocation, and the host
// runs ahead of the streams. Curves are drawn in the time of the compute stream: a sample stands
// where the next operation issued there begins.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace fsdp {

struct TraceEvent {
  std::string name;     // operation: "matmul", "all_gather"
  std::string scope;    // unit or module it belongs to: "h.3", may be empty
  std::string lane;     // stream name
  int64_t enqueued_ns;  // when the host issued it
  int64_t begin_ns;     // when it started on the stream
  int64_t end_ns;
  int64_t bytes = 0;     // payload of a collective or copy, 0 when not meaningful
  int64_t sequence = 0;  // host issue order
};

// A value from here on.
struct TraceSample {
  std::string curve;  // "activation"
  int64_t value = 0;  // bytes
  int64_t sampled_ns = 0;
  int64_t sequence = 0;  // of the next event issued after it
};

int64_t trace_clock_ns();  // steady clock

class Trace {
 public:
  int64_t next_sequence() { return sequence_.fetch_add(1, std::memory_order_relaxed); }
  void record(TraceEvent event);
  void sample(std::string curve, int64_t value);
  // Events in host issue order.
  std::vector<TraceEvent> events() const;
  std::vector<TraceSample> samples() const;  // in the order in which they were taken
  void clear();
  // Chrome trace event format; `rank` becomes the process id.
  std::string to_json(int rank) const;

 private:
  mutable std::mutex mutex_;
  std::vector<TraceEvent> events_;  // grow until who attached it takes it off
  std::vector<TraceSample> samples_;
  std::atomic<int64_t> sequence_{0};
};

}  // namespace fsdp
