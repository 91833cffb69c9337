// The timeline against what real steps issue.
#include "tools/predict/unit_timeline.h"

#include <doctest/doctest.h>

#include "tests/support/lora_models.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

using comm::Accumulation;
using comm::BackwardPrefetch;
using comm::FsdpOptions;
using comm::Strategy;

struct Call {
  std::string kind, unit;
  int64_t bytes;
  bool operator==(const Call&) const = default;
};
std::string to_text(const std::vector<Call>& calls) {
  std::string out;
  for (const Call& c : calls) out += fmt::format("{} {} {}\n", c.kind, c.unit, c.bytes);
  return out;
}

// In order of issue, of the third step of rank 0: gathers, and the other collectives on streams of
// their own.
struct Issued {
  std::vector<Call> gathers, reduces;
  std::vector<std::vector<int64_t>> shard_numels;  // by unit and segment
};

Issued issued_by_a_step(const test::RunSpec& spec) {
  Issued out;
  comm::run_local_ranks(spec.ranks, [&](comm::Communicator& world) {
    test::RankRun run(world, spec);
    run.step(0);
    run.step(1);
    run.wait();
    run.backend().set_trace(&run.trace);
    run.step(2);
    run.wait();
    run.backend().set_trace(nullptr);
    if (world.rank() != 0) return;
    for (const auto& unit : run.sharded().units()) {
      auto& numels = out.shard_numels.emplace_back();
      for (const auto& s : unit->parameters.segments()) numels.push_back(s.layout.shard_numel());
    }
    for (const TraceEvent& e : run.trace.events()) {
      if (e.lane == "compute") continue;
      if (e.name == "all_gather") out.gathers.push_back({e.name, e.scope, e.bytes});
      if (e.name == "reduce_scatter" || e.name == "all_reduce") {
        out.reduces.push_back({e.name, e.scope, e.bytes});
      }
    }
  });
  return out;
}

Issued planned(const test::RunSpec& spec) {
  cpu::CpuBackend backend;
  const test::Subject subject = spec.subject(backend, spec.fsdp.param_dtype);
  for (Parameter* p : subject.module->parameters()) {
    if (spec.frozen && spec.frozen(*p)) p->set_trainable(false);
  }
  const comm::GroupSizes groups = comm::group_sizes(spec.fsdp, spec.ranks);
  const auto wrap = spec.wrap ? spec.wrap : comm::wrap_classes({subject.block_class});
  const auto units = unit_rows(*subject.module, wrap, spec.fsdp, groups);
  Issued out;
  for (const UnitRow& unit : units) {
    auto& numels = out.shard_numels.emplace_back();
    for (const SegmentExtent& s : unit.segments) numels.push_back(s.shard_numel);
  }
  REQUIRE(has_timeline(units));
  for (const auto& rows : step_timeline(units, spec.fsdp, groups)) {
    for (const StepRow& row : rows) {
      for (const auto& c : row.gathers) {
        out.gathers.push_back({c.kind, units[c.unit].name, c.bytes});
      }
      for (const auto& c : row.reduces) {
        out.reduces.push_back({c.kind, units[c.unit].name, c.bytes});
      }
    }
  }
  return out;
}

void check_plan(const test::RunSpec& spec) {
  const Issued expected = issued_by_a_step(spec), got = planned(spec);
  CHECK(got.shard_numels == expected.shard_numels);
  CHECK(to_text(got.gathers) == to_text(expected.gathers));
  CHECK(to_text(got.reduces) == to_text(expected.reduces));
}

TEST_CASE("timeline: the planned collectives are those of a real step, in its order") {
  const std::vector<std::pair<int, FsdpOptions>> cases = {
      {1, {}},
      {2, {}},
      {3, {.forward_prefetch = 0, .backward_prefetch = BackwardPrefetch::kNone}},
      {2, {.forward_prefetch = 2, .units_in_flight = 3}},
      {2, {.forward_prefetch = 2, .units_in_flight = 2}},
      {2, {.units_in_flight = 1}},
      {2, {.backward_prefetch = BackwardPrefetch::kPost}},
      {2, {.reshard_after_forward = false}},
      {2, {.separate_reduce = false}},
      {3, {.strategy = Strategy::kShardGradOp}},
      {2, {.strategy = Strategy::kShardOptimizer}},
      {2, {.strategy = Strategy::kNoShard}},
      {4, {.strategy = Strategy::kHybridShard, .shard_size = 2}},
      {4, {.strategy = Strategy::kHybridShardZero2, .shard_size = 2, .fixed_order = true}},
      {2, {.param_dtype = DType::kBF16, .reduce_dtype = DType::kF32}},
      {2, {.units = {{.match = "blocks.1", .reshard_after_forward = false}}}},
      {3,
       {.units = {{.match = "blocks.[01]", .strategy = Strategy::kShardOptimizer},
                  {.match = "root", .reshard_after_forward = false}}}},
      {2,
       {.param_dtype = DType::kBF16,
        .reduce_dtype = DType::kBF16,
        .units = {{.match = "blocks.2", .param_dtype = DType::kF32, .reduce_dtype = DType::kF32}}}},
      {2, {.micro_steps = 2}},
      {2, {.accumulation = Accumulation::kReduceLast, .micro_steps = 3}},
      {4,
       {.strategy = Strategy::kHybridShard,
        .shard_size = 2,
        .accumulation = Accumulation::kReduceScatterEach,
        .micro_steps = 2}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    check_plan({.ranks = cases[i].first, .fsdp = cases[i].second, .rows = 24});
  }
}

TEST_CASE("timeline: an untied model, and frozen parameters as a segment of their own") {
  check_plan({.subject = test::causal_lm(test::small_llama()), .ranks = 3});
  const auto frozen = [](const Parameter& p) {
    return p.name().find("norm") != std::string::npos || p.name().find("blocks.1") == 0;
  };
  check_plan({.subject = test::causal_lm(test::small_llama()), .ranks = 2, .frozen = frozen});
}

TEST_CASE("timeline: low-rank terms are the segment that is reduced") {
  for (const int in_flight : {1, 2}) {
    const FsdpOptions options = {.param_dtype = DType::kBF16, .units_in_flight = in_flight};
    check_plan({.subject = test::lora_causal_lm(test::small_llama(), 0), .fsdp = options});
  }
  check_plan({.subject = test::lora_causal_lm(test::small_gpt2(), 0),
              .fsdp = {.strategy = Strategy::kNoShard}});
}

TEST_CASE("timeline: units within units, of tables, and where nothing is trained") {
  const models::ModelConfig gpt2 = test::small_gpt2(), llama = test::small_llama();
  models::ModelConfig untied = gpt2;
  untied.tied_head = false;
  struct {
    const models::ModelConfig& model;
    comm::WrapPolicy wrap;
  } const cases[] = {
      {gpt2, comm::wrap_classes({"GPT2Block", "GPT2Attention", "Conv1D", "LayerNorm"})},
      {gpt2, comm::wrap_classes({"GPT2Block", "GPT2MLP"})},
      {untied, comm::wrap_by_size(1600)},
      {llama, comm::wrap_classes({"LlamaDecoderLayer", "Linear", "LlamaRMSNorm"})},
      {llama, comm::wrap_classes({"LlamaAttention", "LlamaMLP"})},
      {llama, comm::wrap_classes({"LlamaDecoderLayer", "Embedding"})},
      {llama, comm::wrap_by_size(500)},
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    CAPTURE(i);
    for (const FsdpOptions& options :
         {FsdpOptions{}, FsdpOptions{.forward_prefetch = 2, .units_in_flight = 3},
          FsdpOptions{.backward_prefetch = BackwardPrefetch::kPost, .units_in_flight = 1},
          FsdpOptions{.forward_prefetch = 0, .backward_prefetch = BackwardPrefetch::kNone},
          FsdpOptions{.strategy = Strategy::kShardGradOp}, FsdpOptions{.release_arena = true}}) {
      check_plan({.subject = test::causal_lm(cases[i].model),
                  .ranks = 2,
                  .fsdp = options,
                  .wrap = cases[i].wrap});
    }
  }
  const auto front = [](const Parameter& p) {
    return p.name().starts_with("embedding.") || p.name().starts_with("blocks.0.");
  };
  for (const models::ModelConfig& model : {gpt2, llama}) {
    check_plan({.subject = test::causal_lm(model), .ranks = 2, .frozen = front});
  }
}

// Units inside a block that runs again in backward are gathered once more, those that keep theirs
// and blocks that are units with nothing inside are not.
TEST_CASE("timeline: recompute") {
  const models::ModelConfig gpt2 = test::small_gpt2(), llama = test::small_llama();
  struct {
    const models::ModelConfig& model;
    comm::WrapPolicy wrap;
  } const cases[] = {
      {gpt2, nullptr},
      {gpt2, comm::wrap_classes({"GPT2Attention", "GPT2MLP"})},
      {gpt2, comm::wrap_classes({"GPT2Block", "GPT2Attention", "Conv1D", "LayerNorm"})},
      {llama, comm::wrap_classes({"LlamaModel", "LlamaMLP", "Linear"})},
      {llama, comm::wrap_classes({"LlamaDecoderLayer", "LlamaAttention", "LlamaMLP"})},
      {llama, comm::wrap_by_size(500)},
  };
  const auto front = [](const Parameter& p) {
    return p.name().starts_with("embedding.") || p.name().starts_with("blocks.0.attention");
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    for (const FsdpOptions& options :
         {FsdpOptions{}, FsdpOptions{.units_in_flight = 1, .micro_steps = 2},
          FsdpOptions{.forward_prefetch = 2,
          .backward_prefetch = BackwardPrefetch::kPost,
          .units_in_flight = 3},
          FsdpOptions{.strategy = Strategy::kShardGradOp, .release_arena = true}}) {
      for (const int every : {1, 2}) {
        CAPTURE(i);
        CAPTURE(every);
        const auto subject = test::causal_lm(cases[i].model, RecomputeMode::kFull, every);
        check_plan({.subject = subject, .fsdp = options, .wrap = cases[i].wrap});
        check_plan({.subject = subject, .fsdp = options, .wrap = cases[i].wrap, .frozen = front});
      }
    }
  }
  const auto calls = [&](RecomputeMode mode) {
    return planned({.subject = test::causal_lm(gpt2, mode),
                    .wrap = comm::wrap_classes({"GPT2Attention", "GPT2MLP"})})
        .gathers.size();
  };
  CHECK(calls(RecomputeMode::kNone) == 13);  // the root, and twice two units of three blocks
  CHECK(calls(RecomputeMode::kSelective) == 13);
  CHECK(calls(RecomputeMode::kFull) == 19);
}

TEST_CASE("timeline: parameters kept by a smaller group, and by some units only") {
  const comm::WrapPolicy parts = comm::wrap_classes({"GPT2Attention", "GPT2MLP"});
  for (const RecomputeMode recompute : {RecomputeMode::kNone, RecomputeMode::kFull}) {
    const auto subject = test::causal_lm(test::small_gpt2(), recompute);
    for (const comm::WrapPolicy& wrap : {comm::WrapPolicy(), parts}) {
      check_plan({.subject = subject,
                  .ranks = 4,
                  .fsdp = {.reshard_group_size = 2, .micro_steps = 3},
                  .wrap = wrap});
      for (const int depth : {1, 3}) {
        check_plan({.subject = subject,
                    .fsdp = {.forward_prefetch = depth,
                             .release_arena = true,
                             .units = {{.match = "blocks.2*", .reshard_after_forward = false}}},
                    .wrap = wrap});
      }
    }
  }
}

// What a demand takes back when no buffer is free: of its own depth only, and of a second
// micro-step's forward unused prefetches only.
TEST_CASE("timeline: prefetches that ran ahead of the buffers") {
  for (const int in_flight : {1, 2, 3}) {
    for (const int ahead : {1, 3, 5}) {
      CAPTURE(in_flight);
      CAPTURE(ahead);
      check_plan(
          {.fsdp = {.forward_prefetch = ahead, .units_in_flight = in_flight, .micro_steps = 2},
           .wrap = comm::wrap_classes({"GPT2Block", "GPT2MLP", "LayerNorm", "Conv1D"})});
    }
  }
}

TEST_CASE("timeline: no timeline for two tables as units") {
  cpu::CpuBackend backend;
  models::CausalLM llama(test::small_llama(), backend, DType::kF32, 1);
  CHECK(has_timeline(unit_rows(llama, comm::wrap_classes({"Embedding"}), {}, {.shards = 2})));
  models::ModelConfig untied = test::small_gpt2();
  untied.tied_head = false;
  models::CausalLM gpt2(untied, backend, DType::kF32, 1);
  CHECK(!has_timeline(unit_rows(gpt2, comm::wrap_classes({"Embedding"}), {}, {.shards = 2})));
}

TEST_CASE("timeline: texts") {
  std::vector<UnitRow> units = {
      {.name = "root", .segments = {{64, 1}}, .policy = comm::unit_policy({}, {2, 1}, true)}};
  for (int i = 0; i < 9; ++i) {
    units.push_back({.name = fmt::format("blocks.{}", i),
                     .depth = 1,
                     .segments = {{64, 2}},
                     .policy = comm::unit_policy({}, {2, 1}, false)});
  }
  const auto steps = step_timeline(units, {}, {2, 1});
  const std::string timeline = format_timeline(units, steps[0]);
  CHECK(test::contains(timeline, "root                      (waits for the gather)"));
  CHECK(test::contains(timeline, "blocks.1                  forward blocks.0"));
  CHECK(test::contains(timeline, "backward blocks.7"));
  CHECK(test::contains(timeline, "...\n"));
  CHECK(!test::contains(timeline, "forward blocks.4"));
  const std::string traffic = format_traffic(steps);
  CHECK(test::contains(traffic, "all_gather                    19"));  // root, 9 and 9
  CHECK(test::contains(traffic, "reduce_scatter                10"));
  for (UnitRow& unit : units) unit.policy = comm::unit_policy({}, {1, 1}, unit.depth == 0);
  CHECK(test::contains(format_traffic(step_timeline(units, {}, {1, 1})), "none"));
}

}  // namespace
}  // namespace fsdp::tools
