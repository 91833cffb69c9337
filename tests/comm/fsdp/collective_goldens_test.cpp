// Calls and bytes of every kind of collective in one step, for every combination of strategy,
// prefetch, accumulation and recompute: a formula over the sizes of the parameters, which are
// computed here from the shapes, unit by unit.
// Requirements: S1.13, S1.14, S3.4, S4.4, S4.6.
#include <map>

#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"
#include "tests/support/unit_sizes.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

constexpr int kMicroSteps = 2;
constexpr int64_t kParamBytes = 2;   // bf16
constexpr int64_t kReduceBytes = 4;  // f32

struct Volume {
  int64_t calls = 0;
  int64_t bytes = 0;
  void add(int64_t times, int64_t each) {
    calls += times;
    bytes += times * each;
  }
};
struct Volumes {  // of a unit
  Volume gather, reduce, replicas;
};
struct StepVolumes {
  std::vector<Volumes> units;  // the root first
  Volume inner;                // of all gathers, those inside a group of reshard_group_size
};

// A unit that keeps its parameters, in f32, and reduces in bf16.
constexpr size_t kOther = 2;
UnitOverride other_unit() {
  return {.match = "blocks.1",
          .reshard_after_forward = false,
          .param_dtype = DType::kF32,
          .reduce_dtype = DType::kBF16};
}

StepVolumes expected(const std::vector<int64_t>& numels, int64_t shards, int64_t replicas,
                     const FsdpOptions& o) {
  const bool gives_back = o.reshard_after_forward.value_or(o.strategy == Strategy::kFullShard ||
                                                           o.strategy == Strategy::kHybridShard);
  const bool last_only = o.accumulation == Accumulation::kReduceLast;
  StepVolumes step;
  for (size_t u = 0; u < numels.size(); ++u) {
    Volumes& v = step.units.emplace_back();
    const bool root = u == 0, other = u == kOther && !o.units.empty();
    const int64_t parameter_bytes = other ? 4 : kParamBytes;
    const int64_t reduced_bytes = other ? 2 : kReduceBytes;
    // Given back: a gather for each forward and backward; the root stays in between. Recompute
    // happens while the unit is there for its backward.
    const int64_t gathers = !gives_back || other ? 1 : root ? kMicroSteps : 2 * kMicroSteps;
    if (shards > 1) v.gather.add(gathers, numels[u] * parameter_bytes);
    // What a smaller group kept from forward is gathered there.
    if (o.reshard_group_size > 0 && !root) step.inner.add(kMicroSteps, numels[u] * parameter_bytes);
    const int64_t reduces = last_only ? 1 : kMicroSteps;
    if (o.fixed_order) {  // over all ranks, and then the parts of a shard, which are in f32
      v.reduce.add(reduces, numels[u] * reduced_bytes);
      if (replicas > 1) v.replicas.add(1, numels[u] / shards * 4);
      continue;
    }
    if (shards > 1) v.reduce.add(reduces, numels[u] * reduced_bytes);
    const bool each = o.accumulation == Accumulation::kReduceEach;
    if (replicas > 1) v.replicas.add(each ? kMicroSteps : 1, numels[u] / shards * reduced_bytes);
  }
  return step;
}

StepVolumes measured(const RunSpec& spec, std::vector<int64_t>& numels) {
  StepVolumes step;
  run_local_ranks(spec.ranks, [&](Communicator& world) {
    RankRun run(world, spec);
    run.step(0);
    const Communicator& shard_group = run.sharded().mesh().gather();
    const CollectiveCount before = shard_group.count(Collective::kAllGather);
    const std::vector<TraceEvent> events = run.traced_step(1);
    if (world.rank() != 0) return;
    numels =
        unit_numels(run.module(), run.sharded().mesh().shards(), spec.fsdp.fixed_order ? 1024 : 64);
    const std::string reduce_lane = spec.fsdp.separate_reduce ? "reduce" : "gather";
    const std::string across = spec.fsdp.fixed_order ? "all_gather" : "all_reduce";
    std::map<std::string, Volumes> by_unit;
    int64_t scalars = 0, others = 0;
    Volume gathers;
    for (const TraceEvent& e : events) {
      Volumes& v = by_unit[e.scope];
      if (e.lane == "gather" && e.name == "all_gather") {
        v.gather.add(1, e.bytes);
        gathers.add(1, e.bytes);
      } else if (e.lane == reduce_lane && e.name == "reduce_scatter") {
        v.reduce.add(1, e.bytes);
      } else if (e.lane == "replicas" && e.name == across) {
        v.replicas.add(1, e.bytes);
      } else if (e.name.starts_with("all_") || e.name.starts_with("reduce_")) {
        ++(e.lane == "compute" && e.name == "all_reduce" ? scalars : others);
      }
    }
    // Present flags, norm, the loss of this test. The norm needs nobody where every rank has the
    // whole gradient.
    const bool whole = spec.fsdp.strategy == Strategy::kNoShard;
    if (!spec.fsdp.fixed_order) CHECK(scalars == (spec.ranks == 1 ? 0 : whole ? 2 : 3));
    CHECK(others == 0);
    for (const auto& unit : run.sharded().units()) step.units.push_back(by_unit[unit->name]);
    const CollectiveCount after = shard_group.count(Collective::kAllGather);
    step.inner = {.calls = gathers.calls - (after.calls - before.calls),
                  .bytes = gathers.bytes - (after.bytes - before.bytes)};
  });
  return step;
}

void check_volumes(const RunSpec& s) {
  std::vector<int64_t> numels;
  const StepVolumes got = measured(s, numels);
  const int64_t shards = s.fsdp.strategy == Strategy::kNoShard ? 1
                         : is_hybrid(s.fsdp.strategy)          ? s.fsdp.shard_size
                                                               : s.ranks;
  const StepVolumes want = expected(numels, shards, s.ranks / shards, s.fsdp);
  const auto check = [](const char* what, const Volume& a, const Volume& b) {
    CAPTURE(what);
    CHECK(a.calls == b.calls);
    CHECK(a.bytes == b.bytes);
  };
  check("inner", got.inner, want.inner);
  REQUIRE(got.units.size() == want.units.size());
  for (size_t u = 0; u < got.units.size(); ++u) {
    CAPTURE(u);
    check("gather", got.units[u].gather, want.units[u].gather);
    check("reduce", got.units[u].reduce, want.units[u].reduce);
    check("replicas", got.units[u].replicas, want.units[u].replicas);
  }
}

}  // namespace

TEST_CASE("collectives: calls and bytes of every strategy, prefetch, accumulation and recompute") {
  using enum Strategy;
  for (const Strategy strategy :
       {kFullShard, kShardGradOp, kShardOptimizer, kNoShard, kHybridShard, kHybridShardZero2}) {
    const bool hybrid = strategy == kHybridShard || strategy == kHybridShardZero2;
    for (const auto prefetch :
         {BackwardPrefetch::kPre, BackwardPrefetch::kPost, BackwardPrefetch::kNone}) {
      for (const auto accumulation : {Accumulation::kReduceEach, Accumulation::kReduceScatterEach,
                                      Accumulation::kReduceLast}) {
        for (const auto recompute :
             {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kFull}) {
          RunSpec s;
          s.subject = causal_lm(small_gpt2(), recompute);
          s.ranks = hybrid ? 4 : 2;
          s.rows = 8;
          s.fsdp = {.strategy = strategy,
                    .shard_size = hybrid ? 2 : 0,
                    .param_dtype = DType::kBF16,
                    .forward_prefetch = prefetch == BackwardPrefetch::kNone ? 0 : 1,
                    .backward_prefetch = prefetch,
                    .accumulation = accumulation,
                    .micro_steps = kMicroSteps};
          CAPTURE(choice_name(strategy));
          CAPTURE(static_cast<int>(prefetch));
          CAPTURE(static_cast<int>(accumulation));
          CAPTURE(static_cast<int>(recompute));
          check_volumes(s);
        }
      }
    }
  }
}

TEST_CASE(
    "collectives: calls and bytes with a unit that keeps its parameters and has other dtypes") {
  using enum Strategy;
  for (const Strategy strategy : {kFullShard, kShardGradOp, kHybridShard}) {
    for (const auto accumulation :
         {Accumulation::kReduceEach, Accumulation::kReduceScatterEach, Accumulation::kReduceLast}) {
      RunSpec s;
      s.ranks = strategy == kHybridShard ? 4 : 2;
      s.rows = 8;
      s.fsdp = {.strategy = strategy,
                .shard_size = strategy == kHybridShard ? 2 : 0,
                .param_dtype = DType::kBF16,
                .accumulation = accumulation,
                .micro_steps = kMicroSteps,
                .units = {other_unit()}};
      CAPTURE(choice_name(strategy));
      CAPTURE(static_cast<int>(accumulation));
      check_volumes(s);
    }
  }
}

TEST_CASE("collectives: calls and bytes of hpZ, other schedules, one rank, and a fixed order") {
  using enum Strategy;
  struct Case {
    const char* name;
    FsdpOptions fsdp;
    int ranks = 4;
  };
  const FsdpOptions one_communicator = {
      .strategy = kHybridShard, .shard_size = 2, .separate_reduce = false};
  const FsdpOptions hybrid_order = {.strategy = kHybridShard, .shard_size = 2, .fixed_order = true};
  const FsdpOptions zero2_order = {
      .strategy = kHybridShardZero2, .shard_size = 2, .fixed_order = true};
  for (const Case& c : std::vector<Case>{
           {"one rank", {}, 1},
           {"kept", {.reshard_after_forward = false}},
           {"ZeRO-2, given back", {.strategy = kShardGradOp, .reshard_after_forward = true}},
           {"one in flight", {.units_in_flight = 1}},
           {"deep", {.forward_prefetch = 3, .units_in_flight = 3}},
           {"hpZ", {.reshard_group_size = 2}},
           {"hpZ, one communicator", {.reshard_group_size = 2, .separate_reduce = false}},
           {"one communicator", {.separate_reduce = false}},
           {"one communicator, hybrid", one_communicator},
           {"fixed order", {.fixed_order = true}},
           {"fixed order, hybrid", hybrid_order},
           {"fixed order, DDP", {.strategy = kNoShard, .fixed_order = true}},
           {"fixed order, hybrid ZeRO-2", zero2_order}}) {
    for (const auto accumulation : {Accumulation::kReduceEach, Accumulation::kReduceLast}) {
      if (c.fsdp.fixed_order && accumulation == Accumulation::kReduceLast) continue;  // refused
      RunSpec s;
      s.ranks = c.ranks;
      s.rows = 8;
      s.fsdp = c.fsdp;
      s.fsdp.param_dtype = DType::kBF16;
      s.fsdp.accumulation = accumulation;
      s.fsdp.micro_steps = kMicroSteps;
      CAPTURE(c.name);
      CAPTURE(static_cast<int>(accumulation));
      check_volumes(s);
    }
  }
}
