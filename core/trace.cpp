// Collection of timeline events and the Chrome trace format
// (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
#include "core/trace.h"

#include <algorithm>
#include <chrono>
#include <map>

#include <fmt/format.h>

namespace fsdp {

int64_t trace_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Trace::record(TraceEvent event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

std::vector<TraceEvent> Trace::events() const {
  std::vector<TraceEvent> sorted;
  {
    const std::lock_guard lock(mutex_);
    sorted = events_;
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const TraceEvent& a, const TraceEvent& b) { return a.sequence < b.sequence; });
  return sorted;
}

void Trace::sample(std::string curve, int64_t value) {
  const std::lock_guard lock(mutex_);
  samples_.push_back(
      {std::move(curve), value, trace_clock_ns(), sequence_.load(std::memory_order_relaxed)});
}

std::vector<TraceSample> Trace::samples() const {
  const std::lock_guard lock(mutex_);
  return samples_;
}

void Trace::clear() {
  const std::lock_guard lock(mutex_);
  events_.clear();
  samples_.clear();
}

namespace {

// A JSON string: names come from callers, and one quote in them would spoil the whole file.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// See [Note: when memory is live]. `sorted`: in host issue order, as are the samples.
std::string curves(const std::vector<TraceSample>& samples, const std::vector<TraceEvent>& sorted,
                   int rank) {
  std::string out;
  size_t next = 0;
  for (const TraceSample& s : samples) {
    while (next < sorted.size() &&
           (sorted[next].sequence < s.sequence || sorted[next].lane != "compute")) {
      ++next;
    }
    const int64_t ns = next < sorted.size() ? sorted[next].begin_ns : s.sampled_ns;
    out += fmt::format(
        ",\n{{\"ph\":\"C\",\"name\":{},\"pid\":{},\"ts\":{:.3f},\"args\":{{\"bytes\":{}}}}}",
        quoted("memory: " + s.curve), rank, static_cast<double>(ns) / 1e3, s.value);
  }
  return out;
}

}  // namespace

std::string Trace::to_json(int rank) const {
  const std::vector<TraceEvent> sorted = events();
  std::map<std::string, size_t> lanes;
  for (const TraceEvent& e : sorted) lanes.emplace(e.lane, lanes.size() + 1);
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  out += fmt::format(
      "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{0},\"args\":{{\"name\":\"rank {0}\"}}}}",
      rank);
  for (const auto& [lane, id] : lanes) {
    out += fmt::format(
        ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":"
        "{}}}}}",
        rank, id, quoted(lane));
  }
  for (const TraceEvent& e : sorted) {
    // Times in microseconds, as the format wants.
    out += fmt::format(
        ",\n{{\"ph\":\"X\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},"
        "\"args\":{{\"unit\":{},\"bytes\":{},\"issue\":{},\"waited_us\":{:.3f}}}}}",
        quoted(e.name), rank, lanes[e.lane], static_cast<double>(e.begin_ns) / 1e3,
        static_cast<double>(e.end_ns - e.begin_ns) / 1e3, quoted(e.scope), e.bytes, e.sequence,
        static_cast<double>(e.begin_ns - e.enqueued_ns) / 1e3);
  }
  return out + curves(samples(), sorted, rank) + "\n]}\n";
}

}  // namespace fsdp
