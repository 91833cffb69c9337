// In which order the host issues what a step communicates, what overlaps, and how many units are
// unsharded at a time: read from the trace of a real step. Calls and bytes:
// collective_goldens_test.cpp.
// Requirements: S1.13, S2.9, S3.4, S4.4.
#include <algorithm>
#include <condition_variable>
#include <mutex>

#include <doctest/doctest.h>

#include "comm/fsdp/fully_sharded.h"
#include "tests/support/sharded_run.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

constexpr int kBlocks = 3;

std::string block(int i) { return fmt::format("blocks.{}", i); }

// The trace of the third step, of every rank.
std::vector<std::vector<TraceEvent>> traced_step(const RunSpec& spec) {
  std::vector<std::vector<TraceEvent>> traces(static_cast<size_t>(spec.ranks));
  run_local_ranks(spec.ranks, [&](Communicator& world) {
    RankRun run(world, spec);
    run.step(0);
    run.step(1);
    traces[static_cast<size_t>(world.rank())] = run.traced_step(2);
  });
  return traces;
}

// Events of one stream, by name and, where given, unit.
std::vector<TraceEvent> select(const std::vector<TraceEvent>& events, std::string_view lane,
                               std::string_view name, std::string_view unit = "") {
  std::vector<TraceEvent> out;
  std::copy_if(events.begin(), events.end(), std::back_inserter(out), [&](const TraceEvent& e) {
    return e.lane == lane && (name.empty() || e.name == name) && (unit.empty() || e.scope == unit);
  });
  return out;
}

}  // namespace

TEST_CASE("issue order: the next unit's gather before this unit's compute and before its reduce") {
  RunSpec s;
  s.ranks = 2;
  for (const std::vector<TraceEvent>& events : traced_step(s)) {
    std::vector<std::vector<TraceEvent>> gathers, reduces, compute;
    for (int i = 0; i < kBlocks; ++i) {
      gathers.push_back(select(events, "gather", "all_gather", block(i)));
      reduces.push_back(select(events, "reduce", "reduce_scatter", block(i)));
      compute.push_back(select(events, "compute", "", block(i)));
      REQUIRE(gathers.back().size() == 2);
      REQUIRE(reduces.back().size() == 1);
      REQUIRE(!compute.back().empty());
    }
    const std::vector<TraceEvent> root_reduce = select(events, "reduce", "reduce_scatter", "root");
    const auto first_backward =
        [&](size_t i) {  // the first task of block i after its second gather
          return *std::find_if(compute[i].begin(), compute[i].end(), [&](const TraceEvent& e) {
            return e.sequence > gathers[i][1].sequence;
          });
        };
    for (size_t i = 0; i + 1 < kBlocks; ++i) {
      CAPTURE(i);
      CHECK(gathers[i][0].sequence < gathers[i + 1][0].sequence);
      CHECK(gathers[i + 1][0].sequence < compute[i][0].sequence);
      // Backward runs from the last block to the first.
      CHECK(gathers[i + 1][1].sequence < gathers[i][1].sequence);
      CHECK(gathers[i][1].sequence < first_backward(i + 1).sequence);
      CHECK(gathers[i][1].sequence < reduces[i + 1][0].sequence);
      CHECK(reduces[i + 1][0].sequence < first_backward(i).sequence);
      CHECK(reduces[i + 1][0].sequence < reduces[i][0].sequence);
    }
    CHECK(reduces[0][0].sequence < root_reduce[0].sequence);
  }
}

// ---------------------------------------------------------------------------- Overlap

namespace {

// Lets an attention of block i begin only after the communication that should overlap it has begun:
// a schedule that made this communication wait for the end of block i's compute would never go on.
class Gate {
 public:
  cpu::CpuOptions options() {
    cpu::CpuOptions o;
    o.delay = [this](const std::string& stream, std::string_view task) {
      pass(stream, task);
      return 0;
    };
    return o;
  }
  bool opened_in_time() const { return in_time_; }

 private:
  void pass(const std::string& stream, std::string_view task) {
    std::unique_lock lock(mutex_);
    if (stream == "gather" && task == "all_gather") ++gathers_;
    if (stream == "reduce" && task == "reduce_scatter") ++reduces_;
    changed_.notify_all();
    if (task == "attention_forward") {
      const int i = forwards_++ % kBlocks;  // gathers before: root, blocks 0 to i; now i + 1
      const int steps_before = (forwards_ - 1) / kBlocks;
      const int gathers = std::min(i + 3, 1 + kBlocks);
      wait(lock, steps_before * kGathers + gathers, 0);
    } else if (task == "attention_backward") {
      const int done = backwards_++ % kBlocks;  // blocks whose backward is over; their reduces run
      const int steps_before = (backwards_ - 1) / kBlocks;
      const int gathers = 1 + kBlocks + std::min(done + 2, kBlocks);
      wait(lock, steps_before * kGathers + gathers, steps_before * kReduces + done);
    }
  }
  void wait(std::unique_lock<std::mutex>& lock, int gathers, int reduces) {
    const auto open = [&] { return gathers_ >= gathers && reduces_ >= reduces; };
    if (!changed_.wait_for(lock, std::chrono::seconds(20), open)) in_time_ = false;
  }

  static constexpr int kGathers = 1 + 2 * kBlocks;  // of a step
  static constexpr int kReduces = 1 + kBlocks;
  std::mutex mutex_;
  std::condition_variable changed_;
  int gathers_ = 0, reduces_ = 0, forwards_ = 0, backwards_ = 0;
  bool in_time_ = true;
};

}  // namespace

TEST_CASE("gathers and reduces run while their neighbours compute") {
  RunSpec s;
  s.ranks = 2;
  const RunResult expected = train(s);
  std::vector<Gate> gates(2);
  s.cpu = [&](int rank) { return gates[static_cast<size_t>(rank)].options(); };
  CHECK((train(s) == expected));
  for (const Gate& gate : gates) CHECK(gate.opened_in_time());

  std::vector<Gate> traced_gates(2);
  s.cpu = [&](int rank) { return traced_gates[static_cast<size_t>(rank)].options(); };
  for (const std::vector<TraceEvent>& events : traced_step(s)) {
    for (int i = 0; i + 1 < kBlocks; ++i) {
      const TraceEvent next_gather = select(events, "gather", "all_gather", block(i + 1))[0];
      const TraceEvent forward = select(events, "compute", "attention_forward", block(i))[0];
      CHECK(next_gather.begin_ns <= forward.end_ns);
      const TraceEvent gather_again = select(events, "gather", "all_gather", block(i))[1];
      const TraceEvent backward = select(events, "compute", "attention_backward", block(i + 1))[0];
      CHECK(gather_again.begin_ns <= backward.end_ns);
    }
  }
}

// ---------------------------------------------------------------------------- Units alive

namespace {

// Looks at the units from inside every block: before and after attention and MLP, both ways.
class Census {
 public:
  void attach(RankRun& run) {
    for (Module* module : run.module().modules()) {
      const std::string& name = module->class_name();
      if (!name.ends_with("Attention") && !name.ends_with("MLP")) continue;
      const std::string unit = module->name().substr(0, module->name().rfind('.'));
      const auto look = [this, &run, unit] { count(run.sharded(), unit); };
      module->set_hooks({look, look, look, look});
    }
  }
  size_t looks = 0, most_blocks = 0, missing = 0;

 private:
  void count(const FullySharded& sharded, const std::string& inside) {
    ++looks;
    size_t blocks = 0;
    for (size_t i = 0; i < sharded.units().size(); ++i) {
      const Unit& unit = *sharded.units()[i];
      if (i > 0) blocks += unit.parameters.has_values();
      const bool needed = i == 0 || unit.name == inside;
      missing += needed && unit.parameters.state() != ParameterState::kUnsharded;
      // Memory is bound exactly while a unit has values.
      missing +=
          unit.parameters.segments()[0].unsharded->has_data() != unit.parameters.has_values();
    }
    most_blocks = std::max(most_blocks, blocks);
  }
};

}  // namespace

TEST_CASE("never more units unsharded than in flight, besides the root") {
  RunSpec s;
  s.ranks = 2;
  for (const int in_flight : {1, 2, 3}) {
    for (const BackwardPrefetch when :
         {BackwardPrefetch::kPre, BackwardPrefetch::kPost, BackwardPrefetch::kNone}) {
      for (const int depth : {0, 1, 3}) {
        CAPTURE(in_flight);
        CAPTURE(static_cast<int>(when));
        CAPTURE(depth);
        s.fsdp.units_in_flight = in_flight;
        s.fsdp.backward_prefetch = when;
        s.fsdp.forward_prefetch = depth;
        std::vector<Census> census(2);
        s.prepared = [&](RankRun& run) { census[static_cast<size_t>(run.rank())].attach(run); };
        train(s);
        const bool ahead = depth > 0 || when == BackwardPrefetch::kPre;
        const int most = std::min(in_flight, depth == 3 ? 3 : ahead ? 2 : 1);
        for (const Census& c : census) {
          CHECK(c.looks == static_cast<size_t>(s.steps * kBlocks * 8));
          CHECK(c.missing == 0);
          CHECK(c.most_blocks == static_cast<size_t>(most));
        }
      }
    }
  }
}

TEST_CASE("a step ends with everything sharded") {
  for (const Strategy strategy : {Strategy::kFullShard, Strategy::kShardGradOp}) {
    RunSpec s;
    s.ranks = 2;
    s.fsdp.strategy = strategy;
    int checked = 0;
    run_local_ranks(s.ranks, [&](Communicator& world) {
      RankRun run(world, s);
      run.step(0);
      for (const auto& unit : run.sharded().units()) {
        CHECK(unit->parameters.state() == ParameterState::kSharded);
        CHECK(unit->gradients->state() == GradientState::kNone);
        CHECK_FALSE(unit->gradients->backward_pending());
      }
      if (world.rank() == 0) ++checked;
    });
    CHECK(checked == 1);
  }
}
