// Offload to the host: the same bits as without, whatever streams of the two backends overtake each
// other, and where what lies. That every wait of the schedule is needed: removed_waits_test.cpp.
// Requirements: S1.10, S4.2, S4.3.
#include <array>
#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

constexpr DType kBF16 = DType::kBF16;
constexpr std::array kModes = {Offload::kOptimizer, Offload::kAll, Offload::kNvme};
constexpr std::array kInMemory = {Offload::kOptimizer, Offload::kAll};

struct Setting {
  std::string what;
  int ranks;
  FsdpOptions options;
};

std::vector<Setting> settings() {
  using enum Strategy;
  using enum Accumulation;
  const FsdpOptions hybrid = {.strategy = kHybridShard, .shard_size = 2};
  const auto with = [](FsdpOptions options, int micro_steps, Accumulation accumulation) {
    options.micro_steps = micro_steps;
    options.accumulation = accumulation;
    return options;
  };
  return {{"one rank", 1, {}},
          {"one rank, bf16", 1, {.param_dtype = kBF16, .reduce_dtype = kBF16}},
          {"one rank, no_shard", 1, {.strategy = kNoShard}},
          {"one rank, micro-steps", 1, with({.reduce_dtype = kBF16}, 3, kReduceEach)},
          {"full_shard", 2, {}},
          {"full_shard on three", 3, {}},
          {"full_shard, bf16 by chance", 2, {.param_dtype = kBF16, .rounding_seed = 3}},
          {"full_shard, micro-steps", 2, with({.param_dtype = kBF16}, 2, kReduceEach)},
          {"full_shard, sum of micro-steps", 2, with({.reduce_dtype = kBF16}, 2, kReduceLast)},
          {"one buffer, one stream", 2, {.units_in_flight = 1, .separate_reduce = false}},
          {"hpZ", 4, {.reshard_group_size = 2}},
          {"arena released", 2, {.release_arena = true}},
          {"shard_grad_op, arena released",
           2,
           {.strategy = kShardGradOp, .param_dtype = kBF16, .release_arena = true}},
          {"shard_optimizer, bf16", 2, {.strategy = kShardOptimizer, .param_dtype = kBF16}},
          {"no_shard", 2, {.strategy = kNoShard}},
          {"no_shard, bf16 by chance, micro-steps", 3,
           with({.strategy = kNoShard, .param_dtype = kBF16, .rounding_seed = 3}, 2, kReduceEach)},
          {"hybrid, replicas in the last micro-step", 4, with(hybrid, 3, kReduceScatterEach)},
          {"hybrid_shard_zero2", 4, {.strategy = kHybridShardZero2, .shard_size = 2}},
          {"fixed order on three", 3, {.micro_steps = 2, .fixed_order = true}},
          {"hybrid, micro-steps, fixed order",
           4,
           {.strategy = kHybridShard, .shard_size = 2, .micro_steps = 2, .fixed_order = true}}};
}

RunSpec spec_of(const Setting& setting) {
  RunSpec s;
  s.ranks = setting.ranks;
  s.fsdp = setting.options;
  s.rows = 36;
  if (s.rows % (s.ranks * s.fsdp.micro_steps) != 0) s.rows = 24;
  s.frozen = [](const Parameter& p) { return p.name().starts_with("blocks.1.attention."); };
  return s;
}

// Every stream of both backends is slow at times.
RunResult train_offloaded(RunSpec spec, Offload mode, uint64_t seed) {
  spec.fsdp.offload = mode;
  spec.cpu = [seed](int) { return random_delays(seed + 1, 300); };
  spec.host = [seed](int) { return random_delays(seed, 300); };
  return train(spec);
}

size_t held(Backend& backend, MemoryCategory category) {
  return backend.ledger().usage().current[static_cast<size_t>(category)];
}

}  // namespace

TEST_CASE("offload: three steps under every strategy, the same bits") {
  for (const Setting& setting : settings()) {
    CAPTURE(setting.what);
    const RunSpec s = spec_of(setting);
    const RunResult expected = train(s);
    for (const Offload mode : kModes) {
      CAPTURE(choice_name(mode));
      for (const uint64_t seed : {1, 2}) CHECK((train_offloaded(s, mode, seed) == expected));
    }
  }
}

// The squares of the second step's gradients overflow, its gradients do not: the norm is infinite.
TEST_CASE("offload: loss scaling, a step that is skipped, no clipping") {
  for (const int ranks : {1, 2}) {
    RunSpec s;
    s.ranks = ranks;
    s.fsdp.detect_overflow = true;
    s.loss_scale = {.initial = 1024};
    s.clip_norm = 0;
    s.steps = 4;
    s.before_step = [](RankRun& run, int step) { run.gradient_factor = step == 1 ? 1e25 : 1; };
    const RunResult expected = train(s);
    CHECK(std::isinf(expected.norms[1]));
    for (const Offload mode : kModes) CHECK((train_offloaded(s, mode, 3) == expected));
  }
}

TEST_CASE("offload: blocks left out, units inside units, several forwards, evaluation") {
  const auto check = [](const RunSpec& s) {
    const RunResult expected = train(s);
    for (const Offload mode : kModes) CHECK((train_offloaded(s, mode, 4) == expected));
  };
  RunSpec s;
  // The last block does without a gradient in the second step, and keeps its values.
  s.subject = block_list(small_gpt2(), [](const Pass& pass) {
    return pass.step == 1 ? std::vector{0, 1} : std::vector{0, 1, 2};
  });
  check(s);
  s.fsdp.absent_is_zero = true;
  check(s);
  s = {};
  s.subject = causal_lm(small_gpt2(), RecomputeMode::kFull);
  s.wrap = wrap_classes({"GPT2Block", "GPT2Attention", "GPT2MLP"});
  check(s);
  s = {};
  s.forwards = 3;
  check(s);
  s = {};
  s.before_step = evaluate_between_steps;
  check(s);
  s.fsdp.strategy = Strategy::kNoShard;
  check(s);
}

// Every read and write takes longer than a step computes.
TEST_CASE("offload: a slow disk, the same bits") {
  for (const bool in_backward : {false, true}) {
    RunSpec s;
    s.clip_norm = in_backward ? 0 : 1;
    const RunResult expected = train(s);
    s.fsdp.offload = Offload::kNvme;
    s.fsdp.update_in_backward = in_backward;
    s.host = [](int) {
      cpu::CpuOptions options;
      options.delay = [](const std::string&, std::string_view task) {
        return task == "read_file" || task == "write_file" ? 4000 : 0;
      };
      return options;
    };
    CHECK((train(s) == expected));
  }
}

TEST_CASE("offload: gradients that are looked at, and a step that is dropped") {
  RunSpec s;
  s.keep_gradients = true;
  s.before_step = [](RankRun& run, int step) {
    run.forward_backward(step + 1);
    run.steps().restart();
  };
  for (const Strategy strategy : {Strategy::kFullShard, Strategy::kNoShard}) {
    s.fsdp.strategy = strategy;
    const RunResult expected = train(s);
    CHECK(!expected.gradients.empty());
    for (const Offload mode : kModes) CHECK((train_offloaded(s, mode, 5) == expected));
  }
}

TEST_CASE("offload: after a step that threw, training goes on") {
  for (const Offload mode : kModes) {
    for (const Strategy strategy : {Strategy::kFullShard, Strategy::kShardGradOp}) {
      RunSpec s;
      s.fsdp.strategy = strategy;
      const RunResult expected = train(s);
      s.fsdp.offload = mode;
      run_local_ranks(s.ranks, [&](Communicator& world) {
        RankRun run(world, s);
        run.step(0);
        run.bad_label = 1000;
        run.step(1);
        CHECK(contains(error_of([&] { run.wait(); }), "got 1000 in row 0"));
        run.bad_label = 0;
        run.recover(1);
        for (int step = 1; step < s.steps; ++step) run.step(step);
        const RunResult result = run.result();
        CHECK((result == expected));
      });
    }
  }
}

TEST_CASE("offload: where what lies, as formulas") {
  for (const DType dtype : {DType::kF32, kBF16}) {
    for (const Strategy strategy : {Strategy::kFullShard, Strategy::kNoShard}) {
      for (const Offload mode : kInMemory) {
        CAPTURE(name_of(dtype));
        CAPTURE(choice_name(strategy));
        CAPTURE(choice_name(mode));
        run_local_ranks(2, [&](Communicator& world) {
          RunSpec s;
          s.fsdp = {.strategy = strategy, .param_dtype = dtype, .offload = mode};
          RankRun run(world, s);
          size_t wide = 0, narrow = 0, largest = 0;
          for (const auto& unit : run.sharded().units()) {
            const auto n = static_cast<size_t>(unit->parameters.trainable()->layout.shard_numel());
            wide += rounded_bytes(4 * n);
            narrow += rounded_bytes(size_of(dtype) * n);
            largest = std::max(largest, rounded_bytes(4 * n));
          }
          // The host: a master, and what the device gets where that is another dtype; a gradient,
          // and two moments.
          using enum MemoryCategory;
          Backend& host = *run.host();
          CHECK(held(host, kParameterShard) == wide + (dtype == DType::kF32 ? 0 : narrow));
          CHECK(held(host, kGradient) == wide);
          CHECK(held(host, kOptimizerState) >= 2 * wide);
          CHECK(held(host, kOptimizerState) < 2 * wide + size_t{16} * 512);
          // The device: parameters in the compute dtype, unless it has them whole, or they stay on
          // the host.
          const bool sharded = strategy == Strategy::kFullShard, all = mode == Offload::kAll;
          CHECK(held(run.backend(), kParameterShard) == (sharded && !all ? narrow : 0));
          // Flags, norm, coefficient.
          CHECK(held(run.backend(), kOptimizerState) <= size_t{8} * 512);
          if (!sharded) return;
          size_t arena = 0;
          for (const auto& unit : run.sharded().units()) {
            const size_t bytes = rounded_bytes(unit->gradients->arena_bytes());
            if (unit->depth == 0) arena += bytes;
            if (unit->name == "blocks.0") arena += kGradientBuffers * bytes;
          }
          const size_t shards = all ? kGradientBuffers * largest : wide;
          CHECK(held(run.backend(), kGradient) == arena + shards);
        });
      }
    }
  }
}

TEST_CASE("offload: the host is another backend, and there is one") {
  run_local_ranks(1, [](Communicator& world) {
    cpu::CpuBackend backend, other;
    const auto refused = [&](Offload offload, Backend* host) {
      models::CausalLM model(small_gpt2(), backend, DType::kF32, 1);
      return contains(error_of([&] {
                        FullySharded(model, wrap_nothing(), {.offload = offload, .host = host},
                                     backend, world);
                      }),
                      "[fsdp] host: with offload, expected a backend");
    };
    CHECK(refused(Offload::kAll, nullptr));
    CHECK(refused(Offload::kAll, &backend));
    CHECK(refused(Offload::kNone, &other));
    CHECK(!refused(Offload::kAll, &other));
  });
}
