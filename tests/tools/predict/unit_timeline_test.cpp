// The rows of a step: their collectives against those of a real step, what they say against what is
// known of the schedule.
#include "tools/predict/unit_timeline.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"

namespace fsdp::tools {
namespace {

using comm::BackwardPrefetch;
using comm::FsdpOptions;
using comm::Strategy;

constexpr int64_t kLength = 7;

struct Case {
  models::ModelConfig model = test::tiny_gpt2(3);
  int ranks = 2;
  FsdpOptions fsdp = {};
  comm::WrapPolicy wrap = {};
  RecomputeMode recompute = RecomputeMode::kNone;
};

PlacedOptions options_of(const Case& c) {
  PlacedOptions options;
  options.model = c.model;
  options.max_length = kLength;
  options.fsdp = c.fsdp;
  options.wrap = c.wrap;
  options.recompute = c.recompute;
  return options;
}

int64_t rows_of(const Case& c) { return 2 * c.ranks * c.fsdp.micro_steps; }

// In order of issue, of the third step of rank 0, on streams of their own.
std::string issued(const Case& c) {
  std::string gathers, reduces;
  comm::run_local_ranks(c.ranks, [&](comm::Communicator& world) {
    Session session = place_session(world, options_of(c));
    session.initialise(models::from_scratch(1));
    const Batch batch = synthetic_batch(c.model, rows_of(c), kLength, world.rank(), world.size());
    Trace trace;
    for (uint32_t step = 0; step < 3; ++step) {
      if (step == 2) session.backend().set_trace(&trace);
      session.train_step(batch, 1e-3, step).read();
    }
    session.backend().synchronize(session.backend().compute_stream());
    session.backend().set_trace(nullptr);
    if (world.rank() != 0) return;
    for (const TraceEvent& e : trace.events()) {
      const std::string line = fmt::format("{} {} {}\n", e.name, e.scope, e.bytes);
      if (e.lane == "compute") continue;
      if (e.name == "all_gather") gathers += line;
      if (e.name == "reduce_scatter" || e.name == "all_reduce") reduces += line;
    }
  });
  return gathers + reduces;
}

struct Planned {
  std::vector<UnitRow> units;
  std::vector<std::vector<StepRow>> steps;
};

Planned planned(const Case& c) {
  MetaRun run(options_of(c), c.ranks);
  run.load(models::from_scratch(1));
  run.steps(rows_of(c), kLength);
  Planned out = {.units = unit_rows(run.session().sharded()), .steps = {}};
  out.steps = step_timeline(run.last_step(), out.units);
  return out;
}

std::string calls_of(const Planned& plan) {
  std::string gathers, reduces;
  for (const auto& rows : plan.steps) {
    for (const StepRow& row : rows) {
      for (const bool gather : {true, false}) {
        for (const PlannedCall& call : gather ? row.gathers : row.reduces) {
          (gather ? gathers : reduces) +=
              fmt::format("{} {} {}\n", call.kind, plan.units[call.unit].name, call.bytes);
        }
      }
    }
  }
  return gathers + reduces;
}

std::string rows_of(const Planned& plan) {
  std::string out;
  for (const StepRow& row : plan.steps.back()) out += row.compute + "\n";
  return out;
}

TEST_CASE("timeline: the collectives of its rows are those of a real step, in its order") {
  const comm::WrapPolicy parts = comm::wrap_classes({"GPT2Block", "GPT2Attention", "GPT2MLP"});
  using enum comm::Accumulation;
  const std::vector<Case> cases = {
      {.ranks = 1},
      {.ranks = 3},
      {.fsdp = {.forward_prefetch = 0, .backward_prefetch = BackwardPrefetch::kNone}},
      {.fsdp = {.forward_prefetch = 2, .backward_prefetch = BackwardPrefetch::kPost}},
      {.fsdp = {.strategy = Strategy::kNoShard}},
      {.ranks = 4, .fsdp = {.strategy = Strategy::kHybridShard, .shard_size = 2}},
      {.fsdp = {.accumulation = kReduceLast, .micro_steps = 3}},
      {.wrap = parts},
      {.wrap = parts, .recompute = RecomputeMode::kFull},
      {.model = test::tiny_llama(3), .wrap = comm::wrap_classes({"Embedding", "LlamaMLP"})},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    const Planned plan = planned(cases[i]);
    CHECK(calls_of(plan) == issued(cases[i]));
    CHECK(plan.steps.size() == static_cast<size_t>(cases[i].fsdp.micro_steps));
  }
}

TEST_CASE("timeline: what is computed, and which part of a unit around others") {
  CHECK(rows_of(planned({.model = test::tiny_llama(2)})) ==
        "\n"
        "forward root, before the blocks\n"
        "forward blocks.0\n"
        "forward blocks.1\n"
        "forward root, after the blocks\n"
        "backward root, after the blocks\n"
        "backward blocks.1\n"
        "backward blocks.0\n"
        "backward root, before the blocks\n"
        "\n");  // its reduction
  const std::string nested =
      rows_of(planned({.wrap = comm::wrap_classes({"GPT2Block", "GPT2MLP"})}));
  CHECK(test::contains(nested,
                       "forward blocks.0, before what is inside\n"
                       "forward blocks.0.mlp\n"
                       "forward blocks.0, after what is inside\n"));
  // The residual add behind the MLP only passes its gradient on.
  CHECK(test::contains(nested,
                       "backward blocks.2.mlp\n"
                       "backward blocks.2, before what is inside\n"));
  CHECK(test::contains(rows_of(planned({.recompute = RecomputeMode::kFull})),
                       "recompute blocks.2\nbackward blocks.2\n"));
}

TEST_CASE("timeline: texts") {
  const Planned plan = planned({.model = test::tiny_llama(9)});
  const std::string timeline = format_timeline(plan.units, plan.steps[0]);
  CHECK(test::contains(timeline, "root                      (waits for the gather)"));
  CHECK(test::contains(timeline, "blocks.1                  forward blocks.0"));
  CHECK(test::contains(timeline, "blocks.6                  backward blocks.7"));
  CHECK(test::contains(timeline, "...\n"));
  CHECK(!test::contains(timeline, "forward blocks.4"));
  const std::string traffic = format_traffic(plan.steps);
  CHECK(test::contains(traffic, "all_gather                    19"));  // the root, 9 and 9
  CHECK(test::contains(traffic, "reduce_scatter                10"));
  CHECK(test::contains(format_traffic(planned({.ranks = 1}).steps), "none"));
}

}  // namespace
}  // namespace fsdp::tools
