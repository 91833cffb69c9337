// The timeline: host issue order, and JSON that a strict parser and Perfetto read.
#include "core/trace.h"

#include <map>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "core/shard_args.h"
#include "kernels/cpu/cpu_backend.h"

namespace fsdp {
namespace {

TEST_CASE("events come back in the order in which the host issued them") {
  Trace trace;
  const int64_t first = trace.next_sequence(), second = trace.next_sequence();
  CHECK(second == first + 1);
  trace.record({"late", "", "compute", 2, 30, 40, 0, second});
  trace.record({"early", "", "gather", 1, 35, 50, 0, first});
  const std::vector<TraceEvent> events = trace.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].name == "early");
  CHECK(events[1].name == "late");
  trace.clear();
  CHECK(trace.events().empty());
}

TEST_CASE("the JSON holds one lane per stream and the times in microseconds") {
  Trace trace;
  trace.record({"matmul", "blocks.0", "compute", 1000, 2500, 4000, 0, 0});
  trace.record({"all_gather", "blocks.1", "gather", 1500, 1500, 9250, 4096, 1});
  const Json json = parse_json(trace.to_json(3), "trace");
  std::map<int, std::string> lanes;
  std::map<std::string, Json> slices;
  for (const Json& event : json["traceEvents"]) {
    CHECK(event["pid"] == 3);
    if (event["name"] == "thread_name") lanes[event["tid"]] = event["args"]["name"];
    if (event["name"] == "process_name") CHECK(event["args"]["name"] == "rank 3");
    if (event["ph"] == "X") slices[event["name"]] = event;
  }
  REQUIRE(slices.size() == 2);
  CHECK(lanes.size() == 2);
  CHECK(lanes[slices["matmul"]["tid"]] == "compute");
  CHECK(lanes[slices["all_gather"]["tid"]] == "gather");
  CHECK(slices["all_gather"]["ts"] == 1.5);
  CHECK(slices["all_gather"]["dur"] == 7.75);
  CHECK(slices["matmul"]["args"]["waited_us"] == 1.5);
  CHECK(slices["all_gather"]["args"]["unit"] == "blocks.1");
  CHECK(slices["all_gather"]["args"]["bytes"] == 4096);
}

TEST_CASE("an empty trace is valid JSON too") {
  const Json json = parse_json(Trace().to_json(0), "trace");
  CHECK(json["traceEvents"].size() == 1);
}

TEST_CASE("names that need escapes are escaped") {
  Trace trace;
  trace.record({"read \"a\\b\"", "unit\n1", "lane\t2", 0, 0, 1, 0, 0});
  const Json json = parse_json(trace.to_json(0), "trace");
  CHECK(json["traceEvents"].back()["name"] == "read \"a\\b\"");
  CHECK(json["traceEvents"].back()["args"]["unit"] == "unit\n1");
}

TEST_CASE("live memory: a curve per category, drawn where the compute stream gets to the change") {
  Trace trace;
  cpu::CpuBackend backend;
  const auto gather = backend.create_stream("gather");
  { const Tensor before = Tensor::empty(backend, Shape{100}, DType::kF32); }  // not recorded
  backend.set_trace(&trace);
  const size_t first = trace.samples().size();  // the values that there are
  CHECK(first == kMemoryCategories);
  Tensor::zeros(backend, Shape{256}, DType::kF32, MemoryCategory::kGradient);
  backend.synchronize(backend.compute_stream());
  backend.set_trace(nullptr);
  const std::vector<TraceSample> samples = trace.samples();
  REQUIRE(samples.size() == first + 2);
  CHECK(samples[first].curve == "gradient");
  CHECK(samples[first].value == 1024);
  CHECK(samples[first + 1].value == 0);
  // The allocation was issued before the zeros, the release after them.
  const std::vector<TraceEvent> events = trace.events();
  REQUIRE(events.size() == 1);
  CHECK(samples[first].sequence == events[0].sequence);
  CHECK(samples[first + 1].sequence == events[0].sequence + 1);
}

TEST_CASE("live memory in the JSON: counters at the begin of the next compute event") {
  Trace trace;
  trace.sample("activation", 512);
  const int64_t gather = trace.next_sequence(), compute = trace.next_sequence();
  trace.record({"all_gather", "", "gather", 0, 100, 200, 0, gather});
  trace.record({"matmul", "", "compute", 0, 7000, 9000, 0, compute});
  const Json json = parse_json(trace.to_json(1), "trace");
  const Json& counter = json["traceEvents"].back();
  CHECK(counter["ph"] == "C");
  CHECK(counter["name"] == "memory: activation");
  CHECK(counter["ts"] == 7.0);
  CHECK(counter["args"]["bytes"] == 512);
  CHECK(counter["pid"] == 1);
}

TEST_CASE("a backend records what it enqueues: task, scope, lane, issue before begin before end") {
  Trace trace;
  cpu::CpuBackend backend;
  backend.set_trace(&trace);
  backend.set_scope("blocks.2");
  Tensor x = Tensor::zeros(backend, Shape{64}, DType::kF32);
  backend.set_scope("");
  backend.run(backend.compute_stream(), DivideArgs{x, 2});
  backend.synchronize(backend.compute_stream());
  backend.set_trace(nullptr);
  Tensor::zeros(backend, Shape{64}, DType::kF32);
  backend.synchronize(backend.compute_stream());
  const std::vector<TraceEvent> events = trace.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].name == "fill_zero");
  CHECK(events[0].scope == "blocks.2");
  CHECK(events[0].bytes == 256);
  CHECK(events[1].name == "divide");
  CHECK(events[1].scope == "");
  for (const TraceEvent& e : events) {
    CHECK(e.lane == "compute");
    CHECK(e.enqueued_ns <= e.begin_ns);
    CHECK(e.begin_ns <= e.end_ns);
  }
  CHECK(events[0].end_ns <= events[1].begin_ns);
}

}  // namespace
}  // namespace fsdp
