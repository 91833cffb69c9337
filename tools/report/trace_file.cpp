// The Chrome trace format, as core/trace.cpp writes it: times in microseconds, lanes as threads.
#include "tools/report/trace_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace fsdp::tools {
namespace {

using Path = std::filesystem::path;

const Json& member(const Json& event, const char* key, const Path& file, size_t index) {
  FSDP_CHECK(event.is_object() && event.contains(key), "{}: traceEvents[{}]: has no \"{}\"",
             file.string(), index, key);
  return event.at(key);
}

std::string text_at(const Json& event, const char* key, const Path& file, size_t index) {
  const Json& value = member(event, key, file, index);
  FSDP_CHECK(value.is_string(), "{}: traceEvents[{}].{}: expected a text, got {}", file.string(),
             index, key, value.dump());
  return value.get<std::string>();
}

double number_at(const Json& event, const char* key, const Path& file, size_t index) {
  constexpr double kLargest = 1e15;  // three decades below what 64 bits hold
  const Json& value = member(event, key, file, index);
  FSDP_CHECK(value.is_number() && std::abs(value.get<double>()) <= kLargest,
             "{}: traceEvents[{}].{}: expected a number within 1e15, got {}", file.string(), index,
             key, value.dump());
  return value.get<double>();
}

TraceEvent read_slice(const Json& event, const std::map<double, std::string>& lanes,
                      const Path& file, size_t i) {
  const Json& arguments = member(event, "args", file, i);
  const auto lane = lanes.find(number_at(event, "tid", file, i));
  FSDP_CHECK(lane != lanes.end(), "{}: traceEvents[{}].tid: no thread_name before it has this tid",
             file.string(), i);
  const double begin_us = number_at(event, "ts", file, i), us = number_at(event, "dur", file, i);
  FSDP_CHECK(us >= 0, "{}: traceEvents[{}].dur: expected at least 0, got {}", file.string(), i, us);
  const int64_t begin_ns = std::llround(begin_us * 1e3);
  return {.name = text_at(event, "name", file, i),
          .scope = text_at(arguments, "unit", file, i),
          .lane = lane->second,
          .enqueued_ns = begin_ns,
          .begin_ns = begin_ns,
          .end_ns = begin_ns + std::llround(us * 1e3),
          .bytes = std::llround(number_at(arguments, "bytes", file, i)),
          .sequence = std::llround(number_at(arguments, "issue", file, i))};
}

Path trace_of(const Path& run_directory, int rank) {
  FSDP_CHECK(std::filesystem::is_directory(run_directory), "{}: no such folder",
             run_directory.string());
  const Path file = run_directory / fmt::format("trace.rank{}.json", rank);
  FSDP_CHECK(std::filesystem::exists(file),
             "{}: has no {}: expected the directory of a run on more than {} ranks, made with "
             "--trace, that has ended",
             run_directory.string(), file.filename().string(), rank);
  return file;
}

}  // namespace

std::vector<TraceEvent> read_trace(const Path& run_directory, int rank) {
  const Path file = trace_of(run_directory, rank);
  const Json json = read_json_file(file);
  FSDP_CHECK(json.is_object() && json.contains("traceEvents") && json.at("traceEvents").is_array(),
             "{}: expected an object with a list \"traceEvents\"", file.string());
  std::map<double, std::string> lanes;
  std::vector<TraceEvent> events;
  const Json& list = json.at("traceEvents");
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string kind = text_at(list[i], "ph", file, i);
    if (kind == "X") {
      events.push_back(read_slice(list[i], lanes, file, i));
    } else if (kind == "M" && text_at(list[i], "name", file, i) == "thread_name") {
      lanes[number_at(list[i], "tid", file, i)] =
          text_at(member(list[i], "args", file, i), "name", file, i);
    }
  }
  return events;
}

// ---------------------------------------------------------------------------- Line by line

namespace {

constexpr std::string_view kStepName = "step ";

// An event of a line, whose numbers are looked for before the line is parsed.
struct EventLine {
  std::string_view text;
  size_t index;  // in traceEvents

  bool is(char kind) const { return text.substr(kKind.size(), 1) == std::string_view(&kind, 1); }
  double number(std::string_view key) const {  // 0: not there
    const size_t at = text.find(key);
    double value = 0;
    if (at != text.npos)
      std::from_chars(text.data() + at + key.size(), text.data() + text.size(), value);
    return value;
  }
  static constexpr std::string_view kKind = "{\"ph\":\"";
};

template <typename Visit>
void visit_lines(std::string_view text, Visit&& visit) {
  for (size_t index = 0; !text.empty();) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(EventLine::kKind)) continue;
    if (line.ends_with(',')) line.remove_suffix(1);
    visit(EventLine{line, index++});
  }
}

class StepReader {
 public:
  explicit StepReader(const Path& file) : file_(file), map_(file) {}

  StepTimeline read() {
    visit_lines(map_.text(), [&](const EventLine& line) { look_for_steps(line); });
    if (out_.step == 0) return std::move(out_);
    visit_lines(map_.text(), [&](const EventLine& line) {
      if (line.is('X')) add_event(line);
      if (line.is('C')) add_sample(line);
    });
    begin_curves();
    return std::move(out_);
  }

 private:
  Json parse(const EventLine& line) const {
    return parse_json(line.text, fmt::format("{}: traceEvents[{}]", file_.string(), line.index));
  }
  TraceEvent slice_of(const EventLine& line) const {
    return read_slice(parse(line), lanes_, file_, line.index);
  }
  void look_for_steps(const EventLine& line) {
    if (line.is('M')) {
      const Json json = parse(line);
      if (text_at(json, "name", file_, line.index) != "thread_name") return;
      lanes_[number_at(json, "tid", file_, line.index)] =
          text_at(member(json, "args", file_, line.index), "name", file_, line.index);
    } else if (line.is('X') && line.text.find("\"name\":\"step ") != line.text.npos) {
      const TraceEvent event = slice_of(line);
      if (event.lane != "step" || event.end_ns <= event.begin_ns) return;
      ++out_.steps;
      out_.step = std::atoll(event.name.c_str() + kStepName.size());
      out_.begin_ns = event.begin_ns, out_.end_ns = event.end_ns;
    }
  }
  void add_event(const EventLine& line) {
    const double begin = line.number("\"ts\":") * 1e3, end = begin + line.number("\"dur\":") * 1e3;
    if (begin >= static_cast<double>(out_.end_ns) || end <= static_cast<double>(out_.begin_ns))
      return;
    out_.events.push_back(slice_of(line));
  }
  // Not parsed: there are many, and their names are those of core/memory_ledger.h.
  void add_sample(const EventLine& line) {
    constexpr std::string_view kBefore = "\"name\":\"memory: ";
    const size_t at = line.text.find(kBefore);
    const int64_t ns = std::llround(line.number("\"ts\":") * 1e3);
    if (at == line.text.npos || ns >= out_.end_ns) return;
    const std::string_view rest = line.text.substr(at + kBefore.size());
    std::string curve(rest.substr(0, rest.find('"')));
    const auto bytes = static_cast<int64_t>(line.number("\"bytes\":"));
    if (ns < out_.begin_ns)
      before_[curve] = bytes;
    else
      out_.samples.push_back({std::move(curve), bytes, ns, 0});
  }
  void begin_curves() {
    std::vector<TraceSample> all;
    for (const auto& [curve, value] : before_) all.push_back({curve, value, out_.begin_ns, 0});
    out_.samples.insert(out_.samples.begin(), all.begin(), all.end());
  }

  Path file_;
  MappedFile map_;
  std::map<double, std::string> lanes_;
  std::map<std::string, int64_t> before_;  // the step began: bytes by curve
  StepTimeline out_;
};

}  // namespace

StepTimeline read_last_step(const Path& run_directory, int rank) {
  return StepReader(trace_of(run_directory, rank)).read();
}

}  // namespace fsdp::tools
