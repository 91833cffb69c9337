// Updates inside backward: the same bits as updates after it, whatever streams overtake each other,
// in less memory for gradients. That every wait is needed, without offload: removed_waits_test.cpp;
// with offload the delays here stand for that. To the byte, crossed with other options:
// tests/tools/predict/meta_run_test.cpp.
#include <algorithm>
#include <array>
#include <limits>

#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

constexpr DType kBF16 = DType::kBF16;
constexpr std::array kEveryOffload = {Offload::kNone, Offload::kOptimizer, Offload::kAll,
                                      Offload::kNvme};

struct Setting {
  std::string what;
  int ranks;
  FsdpOptions options;
};

std::vector<Setting> settings() {
  using enum Strategy;
  using enum Accumulation;
  const FsdpOptions hybrid = {.strategy = kHybridShard, .shard_size = 2};
  FsdpOptions scatter_each = hybrid;
  scatter_each.micro_steps = 3;
  scatter_each.accumulation = kReduceScatterEach;
  return {{"one rank", 1, {}},
          {"one rank, bf16", 1, {.param_dtype = kBF16, .reduce_dtype = kBF16}},
          {"one rank, micro-steps", 1, {.reduce_dtype = kBF16, .micro_steps = 3}},
          {"full_shard", 2, {}},
          {"full_shard on three, bf16 by chance", 3, {.param_dtype = kBF16, .rounding_seed = 3}},
          {"one buffer, one stream", 2, {.units_in_flight = 1, .separate_reduce = false}},
          {"hpZ", 4, {.reshard_group_size = 2}},
          {"arena released", 2, {.release_arena = true}},
          {"shard_grad_op", 2, {.strategy = kShardGradOp, .param_dtype = kBF16}},
          {"shard_optimizer", 2, {.strategy = kShardOptimizer}},
          {"no_shard", 2, {.strategy = kNoShard}},
          {"sum of micro-steps",
           2,
           {.reduce_dtype = kBF16, .accumulation = kReduceLast, .micro_steps = 2}},
          {"hybrid", 4, hybrid},
          {"hybrid, replicas in the last micro-step", 4, scatter_each},
          {"fixed order on three", 3, {.fixed_order = true}},
          {"fixed order of replicas", 2, {.strategy = kNoShard, .fixed_order = true}}};
}

RunSpec without_clipping() {
  RunSpec s;
  s.clip_norm = 0;
  s.fsdp.detect_overflow = false;
  return s;
}

RunResult train_in_backward(RunSpec spec, Offload offload, uint64_t seed) {
  spec.fsdp.update_in_backward = true;
  spec.fsdp.offload = offload;
  spec.cpu = [seed](int) { return random_delays(seed + 1, 300); };
  spec.host = [seed](int) { return random_delays(seed, 300); };
  return train(spec);
}

void check_all(const RunSpec& s) {
  const RunResult expected = train(s);
  for (const Offload offload : kEveryOffload) {
    CAPTURE(choice_name(offload));
    CHECK((train_in_backward(s, offload, 1) == expected));
  }
}

size_t rounded(size_t bytes) { return rounded_bytes(bytes); }

}  // namespace

TEST_CASE("update in backward: three steps under every strategy and offload, the same bits") {
  for (const Setting& setting : settings()) {
    CAPTURE(setting.what);
    RunSpec s = without_clipping();
    s.ranks = setting.ranks;
    s.fsdp = setting.options;
    s.rows = s.ranks * s.fsdp.micro_steps % 3 == 0 ? 36 : 16;
    s.frozen = [](const Parameter& p) { return p.name().starts_with("blocks.1.attention."); };
    check_all(s);
  }
}

TEST_CASE("update in backward: blocks left out, units inside units, recompute, evaluation") {
  RunSpec s = without_clipping();
  // The last block does without a gradient in the second step, and keeps its values.
  s.subject = block_list(small_gpt2(), [](const Pass& pass) {
    return pass.step == 1 ? std::vector{0, 1} : std::vector{0, 1, 2};
  });
  check_all(s);
  s.fsdp.absent_is_zero = true;
  check_all(s);
  s.fsdp.micro_steps = 2;
  s.fsdp.absent_is_zero = false;
  s.subject = block_list(small_gpt2(), [](const Pass& pass) {  // left out in the last micro-step
    return pass.micro_step == 1 ? std::vector{0, 1} : std::vector{0, 1, 2};
  });
  check_all(s);
  s = without_clipping();
  s.subject = causal_lm(small_llama(), RecomputeMode::kFull);
  s.wrap = wrap_classes({"LlamaDecoderLayer", "LlamaAttention", "LlamaMLP"});
  check_all(s);
  s = without_clipping();
  s.before_step = evaluate_between_steps;
  check_all(s);
}

TEST_CASE("update in backward: a root in two parts") {
  RunSpec s = without_clipping();
  const models::ModelConfig config = small_llama();
  s.subject = causal_lm(config);
  s.wrap = wrap_blocks_and_ends(config);
  check_all(s);
  s.ranks = 3;
  s.fsdp.fixed_order = true;
  check_all(s);
}

TEST_CASE("update in backward: other kinds of norm, the same bits of it") {
  for (const double power : {1.0, 3.0, std::numeric_limits<double>::infinity()}) {
    RunSpec s = without_clipping();
    s.clip_power = power;
    s.ranks = 1;
    check_all(s);
  }
}

TEST_CASE("update in backward: gradients take the memory of the root and of two blocks") {
  const auto peak = [](int ranks, FsdpOptions options, Offload offload, bool host) {
    options.offload = offload;
    size_t out = 0;
    RunSpec s = without_clipping();
    s.ranks = ranks;
    s.fsdp = options;
    run_local_ranks(ranks, [&](Communicator& world) {
      RankRun run(world, s);
      for (int step = 0; step < 2; ++step) run.step(step);
      run.wait();
      const Backend& place = host ? *run.host() : run.backend();
      const MemoryUsage usage = const_cast<Backend&>(place).ledger().usage();
      if (world.rank() == 0) out = usage.peak[static_cast<size_t>(MemoryCategory::kGradient)];
    });
    return out;
  };
  // Bytes of an unsharded unit, in f32.
  size_t root = 0, block = 0, all = 0;
  run_local_ranks(1, [&](Communicator& world) {
    RankRun run(world, without_clipping());
    for (const auto& unit : run.sharded().units()) {
      const size_t bytes =
          static_cast<size_t>(unit->parameters.trainable()->layout.numel()) * sizeof(float);
      (unit->depth == 0 ? root : block) = bytes;
      all += rounded(bytes);
    }
  });
  FsdpOptions in_backward = {.update_in_backward = true};
  CHECK(peak(1, {}, Offload::kNone, false) == all);
  CHECK(peak(1, in_backward, Offload::kNone, false) == rounded(root) + 2 * rounded(block));
  // Beside the arena, which has all of no_shard, the shard of the block before, which waits.
  const size_t arena = rounded(root) + 2 * rounded(block);
  const auto shard = [](size_t bytes) { return rounded(bytes / 2); };
  const size_t shards = shard(block) + shard(std::max(root, block));
  CHECK(peak(2, {}, Offload::kNone, false) == arena + shard(root) + 3 * shard(block));
  CHECK(peak(2, in_backward, Offload::kNone, false) == arena + shards);
  in_backward.strategy = Strategy::kShardOptimizer;
  CHECK(peak(2, in_backward, Offload::kNone, false) == arena + shards);
  in_backward.strategy = Strategy::kNoShard;
  CHECK(peak(2, in_backward, Offload::kNone, false) == arena);
  // The host has memory for two gradients of the largest unit.
  in_backward = {.update_in_backward = true};
  const size_t largest = std::max(root, block);
  for (const Offload offload : {Offload::kOptimizer, Offload::kAll, Offload::kNvme}) {
    CHECK(peak(1, in_backward, offload, true) == 2 * rounded(largest));
    CHECK(peak(2, in_backward, offload, true) == 2 * shard(largest));
  }
  CHECK(peak(1, {}, Offload::kAll, true) == all);
}

TEST_CASE("update in backward: what cannot be together") {
  RunSpec s = without_clipping();
  s.ranks = 1;
  s.fsdp.update_in_backward = true;
  const auto error = [](RunSpec spec, const std::function<void(RankRun&)>& act) {
    std::string message;
    run_local_ranks(1, [&](Communicator& world) {
      message = error_of([&] {
        RankRun run(world, spec);
        act(run);
      });
    });
    return message;
  };
  const auto step = [](RankRun& run) { run.step(0); };
  RunSpec wrong = s;
  wrong.clip_norm = 1;
  CHECK(error(wrong, step).starts_with("[clip] max_norm: updates in backward"));
  wrong = s;
  wrong.fsdp.detect_overflow = true;
  CHECK(error(wrong, step).starts_with("fsdp.update_in_backward: loss scaling needs"));
  wrong = s;
  wrong.forwards = 2;
  CHECK(error(wrong, step).starts_with("fsdp.update_in_backward: unit blocks."));
  CHECK(error(s, [](RankRun& run) {
          run.forward_backward(0);
          run.steps().restart();
        }) == "[train_step] restart: update_in_backward: the units are updated already");
  CHECK(error(s, [](RankRun& run) {
          run.forward_backward(0);
          run.steps().update(0.5);
        }).starts_with("[train_step] update: the units were updated in backward, with a learning"));
  CHECK(error(s, [](RankRun& run) {
          run.steps().micro_step({{.loss = [] { return Tensor(); }}});
        }) == "[train_step] micro_step: update_in_backward: expected begin_update before it");
}
