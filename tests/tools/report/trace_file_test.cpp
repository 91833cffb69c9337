// What a run wrote is read back; what is no trace is an Error that names the place.
#include "tools/report/trace_file.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("trace file: events come back as core/trace.cpp writes them, without its curves") {
  Trace trace;
  trace.record({"all_gather", "blocks.\"0\"", "gather", 1'000, 2'500, 1'002'503, 77, 1});
  trace.record({"matmul", "", "compute", 500, 500, 500, 0, 0});
  trace.sample("activation", 100);
  const test::TempFolder folder;
  folder.write("trace.rank3.json", trace.to_json(3));
  const std::vector<TraceEvent> events = read_trace(folder.path(), 3);
  REQUIRE(events.size() == 2);
  CHECK(events[0].name == "matmul");
  CHECK(events[0].lane == "compute");
  CHECK(events[0].begin_ns == 500);
  CHECK(events[0].end_ns == 500);
  CHECK(events[1].scope == "blocks.\"0\"");
  CHECK(events[1].lane == "gather");
  CHECK(events[1].begin_ns == 2'500);
  CHECK(events[1].end_ns == 1'002'503);
  CHECK(events[1].bytes == 77);
  CHECK(events[1].sequence == 1);
}

TEST_CASE("trace file: the last step, with what reaches into it and the memory at its beginning") {
  constexpr int64_t kMs = 1'000'000;
  Trace trace;
  trace.sample("activation", 100);  // before the first event: at 1 ms
  trace.record({"step 7", "", "step", 0, 1 * kMs, 9 * kMs, 0, trace.next_sequence()});
  trace.record({"matmul", "a", "compute", 0, 1 * kMs, 9 * kMs, 0, trace.next_sequence()});
  trace.sample("activation", 300);
  trace.record({"all_gather", "\"ts\":", "gather", 0, 8 * kMs, 12 * kMs, 5, trace.next_sequence()});
  trace.record({"step 8", "", "step", 0, 10 * kMs, 20 * kMs, 0, trace.next_sequence()});
  trace.record({"matmul", "b", "compute", 0, 11 * kMs, 12 * kMs, 0, trace.next_sequence()});
  trace.sample("activation", 200);
  trace.record({"matmul", "b", "compute", 0, 13 * kMs, 14 * kMs, 0, trace.next_sequence()});
  trace.record({"evaluation", "", "step", 0, 20 * kMs, 30 * kMs, 0, trace.next_sequence()});
  const test::TempFolder folder;
  folder.write("trace.rank0.json", trace.to_json(0));
  const StepTimeline step = read_last_step(folder.path(), 0);
  CHECK(step.step == 8);
  CHECK(step.steps == 2);
  CHECK(step.begin_ns == 10 * kMs);
  CHECK(step.end_ns == 20 * kMs);
  REQUIRE(step.events.size() == 4);
  CHECK(step.events[0].scope == "\"ts\":");  // a name is no number
  CHECK(step.events[0].begin_ns == 8 * kMs);
  CHECK(step.events[0].bytes == 5);
  CHECK(step.events[1].name == "step 8");
  CHECK(step.events[3].lane == "compute");
  std::vector<std::pair<int64_t, int64_t>> samples;
  for (const TraceSample& sample : step.samples) {
    CHECK(sample.curve == "activation");
    samples.emplace_back(sample.sampled_ns / kMs, sample.value);
  }
  CHECK(samples == std::vector<std::pair<int64_t, int64_t>>{{10, 100}, {11, 300}, {13, 200}});
}

TEST_CASE("trace file: no last step, where there is none") {
  const test::TempFolder folder;
  folder.write("trace.rank0.json", Trace().to_json(0));
  CHECK(read_last_step(folder.path(), 0).step == 0);
  CHECK(test::contains(test::error_of([&] { read_last_step(folder.path(), 1); }),
                       "has no trace.rank1.json"));
  folder.write("trace.rank0.json", "{\"traceEvents\":[\n{\"ph\":\"M\",\"name\n");
  CHECK(test::contains(test::error_of([&] { read_last_step(folder.path(), 0); }),
                       "trace.rank0.json: traceEvents[0]:1: malformed JSON"));
}

TEST_CASE("trace file: mistakes") {
  const test::TempFolder folder;
  const auto error_with = [&](const std::string& text) {
    folder.write("trace.rank0.json", text);
    return test::error_of([&] { read_trace(folder.path(), 0); });
  };
  CHECK(test::contains(test::error_of([&] { read_trace(folder / "nowhere", 0); }),
                       "nowhere: no such folder"));
  CHECK(test::contains(test::error_of([&] { read_trace(folder.path(), 1); }),
                       "has no trace.rank1.json: expected the directory of a run on more than 1 "
                       "ranks, made with --trace, that has ended"));
  CHECK(test::contains(error_with("{\"traceEvents\": ["), "trace.rank0.json:1: malformed JSON"));
  CHECK(test::contains(error_with("[]"), "trace.rank0.json: expected an object with a list"));
  const std::string lane =
      R"({"ph": "M", "name": "thread_name", "tid": 1, "args": {"name": "compute"}})";
  const auto slice = [&](const std::string& numbers) {
    return error_with("{\"traceEvents\": [" + lane + R"(, {"ph": "X", "name": "matmul", )" +
                      numbers + R"(, "args": {"unit": "", "bytes": 0, "issue": 1}}]})");
  };
  CHECK(test::contains(slice(R"("tid": 1, "ts": "now", "dur": 1)"),
                       "traceEvents[1].ts: expected a number within 1e15, got \"now\""));
  CHECK(test::contains(slice(R"("tid": 1, "ts": 1e300, "dur": 1)"), "traceEvents[1].ts: "));
  CHECK(test::contains(slice(R"("tid": 1, "ts": 1, "dur": -1)"),
                       "traceEvents[1].dur: expected at least 0, got -1"));
  CHECK(test::contains(slice(R"("tid": 2, "ts": 1, "dur": 1)"), "traceEvents[1].tid: "));
  CHECK(test::contains(slice(R"("tid": 1, "ts": 1)"), "traceEvents[1]: has no \"dur\""));
  CHECK(test::contains(error_with(R"({"traceEvents": [1]})"), "traceEvents[0]: has no \"ph\""));
}

}  // namespace
}  // namespace fsdp::tools
