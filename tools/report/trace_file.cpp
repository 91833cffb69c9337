// The Chrome trace format, as core/trace.cpp writes it: times in microseconds, lanes as threads.
#include "tools/report/trace_file.h"

#include <cmath>
#include <map>

#include <fmt/format.h>

#include "core/error.h"
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

}  // namespace

std::vector<TraceEvent> read_trace(const Path& run_directory, int rank) {
  FSDP_CHECK(std::filesystem::is_directory(run_directory), "{}: no such folder",
             run_directory.string());
  const Path file = run_directory / fmt::format("trace.rank{}.json", rank);
  FSDP_CHECK(std::filesystem::exists(file),
             "{}: has no {}: expected the directory of a run on more than {} ranks, made with "
             "--trace, that has ended",
             run_directory.string(), file.filename().string(), rank);
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

}  // namespace fsdp::tools
