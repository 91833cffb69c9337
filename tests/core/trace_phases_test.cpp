// Steps and their parts on the timeline, over events drawn by hand.
#include "core/trace_phases.h"

#include <map>

#include <doctest/doctest.h>

namespace fsdp {
namespace {

TEST_CASE("phases are drawn over what the compute stream ran of them, and nest") {
  Trace trace;
  TracePhases phases(trace);
  const size_t step = phases.begin("step 1"), forward = phases.begin("forward");
  const int64_t gather = trace.next_sequence(), matmul = trace.next_sequence();
  phases.end(forward);
  {
    const PhaseScope backward(&phases, "backward");
    CHECK(phases.innermost() == "backward");
    trace.record({"matmul", "", "compute", 0, 5000, 8000, 0, trace.next_sequence()});
  }
  CHECK(phases.innermost() == "step 1");
  phases.end(step);
  { const PhaseScope idle(&phases, "evaluation"); }
  { const PhaseScope nothing(nullptr, "no phases"); }
  CHECK(phases.innermost().empty());
  const PhaseScope open(&phases, "saving");
  CHECK(phases.innermost() == "saving");
  trace.record({"copy", "", "compute", 0, 9000, 9500, 0, trace.next_sequence()});
  trace.record({"all_gather", "", "gather", 0, 1000, 2000, 0, gather});  // ends out of order
  trace.record({"matmul", "", "compute", 0, 3000, 4000, 0, matmul});
  phases.record();
  std::vector<std::string> names;
  std::map<std::string, std::pair<int64_t, int64_t>> drawn;
  for (const TraceEvent& e : trace.events()) {
    if (e.lane != "step") continue;
    names.push_back(e.name);
    drawn[e.name] = {e.begin_ns, e.end_ns};
  }
  CHECK(names == std::vector<std::string>{"step 1", "forward", "backward", "saving"});
  CHECK(drawn["step 1"] == std::pair<int64_t, int64_t>{3000, 8000});
  CHECK(drawn["forward"] == std::pair<int64_t, int64_t>{3000, 4000});
  CHECK(drawn["backward"] == std::pair<int64_t, int64_t>{5000, 8000});
  CHECK(drawn["saving"] == std::pair<int64_t, int64_t>{9000, 9500});
}

TEST_CASE("who is told of phases is not told of an end by an exception") {
  std::vector<std::string> told;
  TracePhases phases(nullptr, [&](const std::vector<std::string>& open) { told = open; });
  { const PhaseScope step(&phases, "step 1"); }
  CHECK(told.empty());
  try {
    const PhaseScope step(&phases, "checkpoint");
    throw 1;
  } catch (int) {
  }
  CHECK(told == std::vector<std::string>{"checkpoint"});
  CHECK(phases.innermost().empty());
  const PhaseScope step(&phases, "step 2");
  CHECK(told == std::vector<std::string>{"step 2"});
}

TEST_CASE("marks are told of every end, and of phases that have begun") {
  struct Told : PhaseMarks {
    std::vector<std::string> names;
    void begin_phase(const std::string& name) override { names.push_back(name); }
    void end_phase() override { names.emplace_back(); }
  } told;
  TracePhases phases(nullptr, nullptr);
  const PhaseScope run(&phases, "run");
  phases.set_marks(&told);
  try {
    const PhaseScope step(&phases, "step 1");
    throw 1;
  } catch (int) {
  }
  CHECK(told.names == std::vector<std::string>{"run", "step 1", ""});
  phases.set_marks(nullptr);
  { const PhaseScope step(&phases, "step 2"); }
  CHECK(told.names.size() == 3);
}

TEST_CASE("a timeline that has ended gets no phase that begins later") {
  Trace trace;
  TracePhases phases(trace);
  {
    const PhaseScope step(&phases, "step 1");
    phases.end_timeline();
    trace.record({"a", "", "compute", 0, 10, 20, 0, trace.next_sequence()});
  }
  for (int i = 0; i < 3; ++i) {
    const PhaseScope step(&phases, "step 2");
    CHECK(phases.innermost() == "step 2");
    trace.record({"b", "", "compute", 0, 30, 40, 0, trace.next_sequence()});
  }
  const size_t before = trace.events().size();
  phases.record();
  CHECK(trace.events().size() == before + 1);
}

TEST_CASE("what a recording takes of memory grows with it, also with long names") {
  Trace trace;
  CHECK(bytes_of(trace) == 0);
  trace.record({"short", "", "compute", 0, 0, 1, 0, 0});
  CHECK(bytes_of(trace) == sizeof(TraceEvent));
  trace.record({std::string(1000, 'n'), "", "compute", 0, 0, 1, 0, 1});
  CHECK(bytes_of(trace) >= 2 * sizeof(TraceEvent) + 1000);
  const size_t events = bytes_of(trace);
  trace.sample("activation", 1);
  CHECK(bytes_of(trace) == events + sizeof(TraceSample));
}

}  // namespace
}  // namespace fsdp
