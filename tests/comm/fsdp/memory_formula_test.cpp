// Memory of a rank, at rest and at its peak, as formulas over the sizes of the parameters. The flat
// sizes are computed here from the shapes, not asked from the layout. N ranks in a shard group; a
// unit has S_u elements per shard (padding included), N S_u unsharded; m, p, r: bytes of an element
// of the master, of the unsharded parameters and of the unsharded gradients (a: m where micro-steps
// add up unsharded, else r). R is the root, B the blocks.
//
// Parameters given back between uses (full_shard, hybrid_shard; N > 1):
//   parameter shard      m sum S_u
//   unsharded parameter  p N (S_R + 2 max_B S_u)                 the arena
// Parameters kept (the other strategies, reshard_after_forward: false, or N = 1):
//   parameter shard      m sum S_u      unsharded p N sum S_u    p = m: one holds the other
// reshard_group_size g:  unsharded parameter + p N sum_B S_u / g
// Gradients reduced when a unit's backward ends (full_shard, shard_grad_op, their hybrids):
//   gradient             m sum S_u + r N (S_R + 2 max_B S_u)
// Gradients kept unsharded (no_shard, shard_optimizer, reduce_last):
//   gradient             a N sum S_u + m sum S_u                 one buffer where nothing differs;
//                        + r N (S_R + 2 max_B S_u) if a != r
// optimizer state        k m sum S_u, and counters; k: values that the optimizer keeps
// Every term is rounded up as the ledger does. Other options, pair by pair, are compared with a run
// without bytes (tests/tools/predict/meta_run_test.cpp).
// Requirements: S1.9, S4.4, S4.6.
#include <algorithm>

#include <doctest/doctest.h>

#include "comm/fsdp/fully_sharded.h"
#include "optim/optimizer_kind.h"
#include "tests/support/sharded_run.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

struct UnitSize {
  size_t numel =
      0;  // of the unsharded buffer: every parameter and every shard starts at 64 elements
  size_t shard = 0;
  size_t parameters = 0;
};

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Root first. `shards`: ranks of a shard group.
std::vector<UnitSize> unit_sizes(const Module& model, size_t shards) {
  std::map<std::string, UnitSize> units;  // "" is the root; blocks sort after it
  for (const Parameter* p : model.parameters()) {
    const std::string& name = p->name();
    const bool in_block = name.starts_with("blocks.");
    UnitSize& unit = units[in_block ? name.substr(0, name.find('.', 7)) : ""];
    unit.numel += round_up(static_cast<size_t>(p->numel()), 64);
    ++unit.parameters;
  }
  std::vector<UnitSize> out;
  for (auto& [name, unit] : units) {
    unit.numel = round_up(unit.numel, 64 * shards);
    unit.shard = unit.numel / shards;
    out.push_back(unit);
  }
  return out;
}

struct Expected {
  size_t parameter_shard = 0, unsharded_parameter = 0, gradient = 0, optimizer_state = 0;
};

struct Shapes {
  size_t shards;
  size_t master, parameter, gradient;  // bytes of an element: master, param_dtype, reduce_dtype
  size_t states;                       // k
};

// Two arena buffers for the blocks, one for the root.
size_t arena(const std::vector<UnitSize>& units, size_t element) {
  size_t largest = 0;
  for (size_t i = 1; i < units.size(); ++i) largest = std::max(largest, units[i].numel);
  return rounded_bytes(units[0].numel * element) + 2 * rounded_bytes(largest * element);
}

Expected expected(const std::vector<UnitSize>& units, const Shapes& s, const FsdpOptions& o) {
  const bool keeps = o.strategy != Strategy::kFullShard && o.strategy != Strategy::kHybridShard;
  const bool resident = s.shards == 1 || !o.reshard_after_forward.value_or(!keeps);
  const bool master_is_slice = resident && s.master == s.parameter;
  const bool several = o.micro_steps > 1;
  const bool reduce_last = several && o.accumulation == Accumulation::kReduceLast;
  const bool unsharded_gradient =
      s.shards == 1 || o.strategy == Strategy::kShardOptimizer || reduce_last;
  const size_t accumulated = reduce_last ? s.master : s.gradient;  // bytes of an element
  const bool gradient_in_place =
      s.shards == 1 && s.gradient == s.master && (!several || reduce_last);
  Expected e;
  size_t flags = 0;
  for (const UnitSize& u : units) {
    const bool root = &u == units.data();
    if (!master_is_slice) e.parameter_shard += rounded_bytes(u.shard * s.master);
    if (resident) {
      (master_is_slice && s.shards == 1 ? e.parameter_shard : e.unsharded_parameter) +=
          rounded_bytes(u.numel * s.parameter);
    }
    if (o.reshard_group_size > 0 && !root) {  // the root is not given back in between
      e.unsharded_parameter +=
          rounded_bytes(u.numel / static_cast<size_t>(o.reshard_group_size) * s.parameter);
    }
    if (unsharded_gradient) e.gradient += rounded_bytes(u.numel * accumulated);
    if (!gradient_in_place) e.gradient += rounded_bytes(u.shard * s.master);
    e.optimizer_state +=
        s.states * rounded_bytes(u.shard * s.master) + rounded_bytes(4 * u.parameters);
    flags += u.parameters;
  }
  if (!resident) e.unsharded_parameter += arena(units, s.parameter);
  if (!unsharded_gradient || accumulated != s.gradient) e.gradient += arena(units, s.gradient);
  // Present flags, learning rate, and the clipper's power sum, norm, coefficient and skip.
  e.optimizer_state += rounded_bytes(4 * flags) + 5 * kAllocationGranularity;
  return e;
}

void check_memory(const models::ModelConfig& model, int ranks, const FsdpOptions& options,
                  const optim::OptimizerOptions& optimizer = {}, size_t states = 2) {
  CAPTURE(choice_name(options.strategy));
  CAPTURE(ranks);
  CAPTURE(name_of(options.param_dtype));
  CAPTURE(name_of(options.reduce_dtype));
  CAPTURE(options.micro_steps);
  CAPTURE(static_cast<int>(options.accumulation));
  RunSpec s;
  s.subject = causal_lm(model);
  s.ranks = ranks;
  s.rows = ranks == 1 ? 6 : 12;  // more than 64 positions: a narrow head gradient needs a wide one
  s.fsdp = options;
  s.optimizer = optimizer;
  std::vector<MemoryUsage> usage(static_cast<size_t>(ranks));
  std::vector<UnitSize> units;
  Shapes shapes{};
  run_local_ranks(ranks, [&](Communicator& world) {
    RankRun run(world, s);
    for (int step = 0; step < 2; ++step) run.step(step);
    usage[static_cast<size_t>(world.rank())] = run.backend().ledger().usage();
    if (world.rank() != 0) return;
    const auto shards = static_cast<size_t>(run.sharded().mesh().shards());
    units = unit_sizes(run.module(), shards);
    shapes = {shards, size_of(accumulation_dtype(options.param_dtype)),
              size_of(options.param_dtype), size_of(options.reduce_dtype), states};
  });
  const Expected e = expected(units, shapes, options);
  for (const MemoryUsage& u : usage) {
    const auto check = [&](MemoryCategory category, size_t bytes) {
      CAPTURE(name_of(category));
      CHECK(u.current[static_cast<size_t>(category)] == bytes);
      CHECK(u.peak[static_cast<size_t>(category)] == bytes);
    };
    check(MemoryCategory::kParameterShard, e.parameter_shard);
    check(MemoryCategory::kUnshardedParameter, e.unsharded_parameter);
    check(MemoryCategory::kGradient, e.gradient);
    check(MemoryCategory::kOptimizerState, e.optimizer_state);
    check(MemoryCategory::kCommunication, 0);
    check(MemoryCategory::kTransportStaging, 0);
    CHECK(u.current[static_cast<size_t>(MemoryCategory::kActivation)] == 0);
  }
}

// (ranks, options) of every strategy.
std::vector<std::pair<int, FsdpOptions>> strategies() {
  using enum Strategy;
  return {{1, {.strategy = kFullShard}},
          {3, {.strategy = kFullShard}},
          {3, {.strategy = kShardGradOp}},
          {3, {.strategy = kShardOptimizer}},
          {2, {.strategy = kNoShard}},
          {4, {.strategy = kHybridShard, .shard_size = 2}},
          {4, {.strategy = kHybridShardZero2, .shard_size = 2}},
          {2, {.reshard_after_forward = false}},
          {4, {.reshard_group_size = 2}}};
}

}  // namespace

TEST_CASE("memory of every strategy, gpt2 in f32") {
  for (const auto& [ranks, options] : strategies()) check_memory(small_gpt2(), ranks, options);
}

TEST_CASE("memory of every strategy, llama in f64, bf16 with f32 reduces, bf16") {
  for (auto [ranks, options] : strategies()) {
    for (const auto& [param, reduce] :
         {std::pair{DType::kF64, DType::kF64}, std::pair{DType::kBF16, DType::kF32},
          std::pair{DType::kBF16, DType::kBF16}}) {
      options.param_dtype = param;
      options.reduce_dtype = reduce;
      check_memory(small_llama(), ranks, options);
    }
  }
}

TEST_CASE("memory of every optimizer, by the values that it keeps of an element") {
  using enum optim::OptimizerKind;
  for (const FsdpOptions& options : {FsdpOptions{}, FsdpOptions{.strategy = Strategy::kNoShard}}) {
    for (const auto kind : {kAdamW, kAdam, kAdamax, kAdadelta}) {
      check_memory(small_llama(), 2, options, {.kind = kind}, 2);
    }
    check_memory(small_llama(), 2, options, {.kind = kSgd}, 0);
    check_memory(small_llama(), 2, options, {.kind = kSgd, .momentum = 0.9}, 1);
  }
}

// Where the average is made in place, what the first backward left waits beside it.
TEST_CASE("a second backward of a micro-step sets gradients in place aside") {
  using enum Strategy;
  for (const auto& [ranks, strategy] : {std::pair{1, kFullShard}, std::pair{2, kNoShard},
                                        std::pair{2, kFullShard}, std::pair{2, kShardOptimizer}}) {
    CAPTURE(ranks);
    CAPTURE(choice_name(strategy));
    RunSpec spec;
    spec.ranks = ranks;
    spec.fsdp.strategy = strategy;
    run_local_ranks(ranks, [&](Communicator& world) {
      RankRun run(world, spec);
      const auto peak = [&] {
        return run.backend().ledger().usage().peak[static_cast<size_t>(MemoryCategory::kGradient)];
      };
      run.forward_backward(0);
      const size_t once = peak();
      run.backward_again(0);
      CHECK(peak() == (run.sharded().mesh().shards() == 1 ? 2 : 1) * once);
    });
  }
}

TEST_CASE("memory with micro-steps, by what is communicated between them") {
  for (auto [ranks, options] : strategies()) {
    if (ranks == 3) ranks = 2;
    options.micro_steps = 3;
    for (const DType reduce : {DType::kF32, DType::kBF16}) {
      options.param_dtype = options.reduce_dtype = reduce;
      for (const Accumulation accumulation :
           {Accumulation::kReduceEach, Accumulation::kReduceScatterEach,
            Accumulation::kReduceLast}) {
        options.accumulation = accumulation;
        check_memory(small_llama(), ranks, options);
      }
    }
  }
}
