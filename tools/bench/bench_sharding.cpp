// The settings, and the order in which they are measured.
#include "tools/bench/bench_sharding.h"

#include <algorithm>
#include <thread>

namespace fsdp::tools {
namespace {

// On the first rank alone; the others wait.
StepBench bench_alone(const StepBenchOptions& step, RankContext& rank) {
  const bool first = rank.world.rank() == 0;
  const auto group = rank.world.split(
      [](int r) { return comm::SplitPlace{.color = r == 0 ? 0 : 1, .key = r}; }, "alone");
  StepBench out;
  if (first) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    const int threads = std::clamp(rank.threads * rank.world.size(), 1, cores);
    RankContext alone = {.world = *group, .backend = rank.backend, .threads = threads};
    alone.backend.cpu.threads = threads;
    out = bench_step(step, alone);
  }
  rank.world.barrier();
  return out;
}

void append(StepBench& all, StepBench&& round) {
  round.step_ms.insert(round.step_ms.begin(), all.step_ms.begin(), all.step_ms.end());
  round.traces.insert(round.traces.begin(), all.traces.begin(), all.traces.end());
  all = std::move(round);  // memory is the same in every round
}

std::vector<ShardingSetting> offload_settings(const std::string& prefix, RecomputeMode recompute) {
  std::vector<ShardingSetting> out;
  for (const comm::Offload offload : comm::kOffloads) {
    out.push_back({.name = prefix + std::string(choice_name(offload)),
                   .fsdp = {.offload = offload},
                   .recompute = recompute});
  }
  return out;
}

}  // namespace

std::vector<ShardingSetting> sharding_settings(const std::string& vary, int ranks) {
  using enum comm::Strategy;
  if (vary == "recompute") {
    return {{"none", {}, RecomputeMode::kNone},
            {"selective", {}, RecomputeMode::kSelective},
            {"full, every 2nd", {}, RecomputeMode::kFull, 2},
            {"full", {}, RecomputeMode::kFull},
            {"offload", {}, RecomputeMode::kOffload}};
  }
  if (vary == "schedule") {
    using enum comm::BackwardPrefetch;
    return {{"pre, forward", {}},
            {"post, forward", {.backward_prefetch = kPost}},
            {"none", {.forward_prefetch = 0, .backward_prefetch = kNone}},
            {"one unit in flight", {.units_in_flight = 1}},
            {"three in flight", {.forward_prefetch = 2, .units_in_flight = 3}},
            {"one communicator", {.separate_reduce = false}}};
  }
  if (vary == "offload") return offload_settings("", RecomputeMode::kNone);
  if (vary == "memory") {
    std::vector<ShardingSetting> all;
    for (const ShardingSetting& recompute : sharding_settings("recompute", ranks)) {
      if (recompute.recompute_every > 1) continue;
      for (ShardingSetting& s : offload_settings(recompute.name + ", ", recompute.recompute)) {
        s.base = all.size() / comm::kOffloads.size() * comm::kOffloads.size();
        all.push_back(std::move(s));
      }
    }
    return all;
  }
  if (vary == "order") {
    return {{"as it comes", {}}, {"fixed_order", {.fixed_order = true}}};
  }
  std::vector<ShardingSetting> out;
  if (ranks > 1) out.push_back({.name = "one rank", .alone = true});
  out.push_back({"no_shard", {.strategy = kNoShard}});
  out.push_back({"shard_optimizer", {.strategy = kShardOptimizer}});
  out.push_back({"shard_grad_op", {.strategy = kShardGradOp}});
  out.push_back({"full_shard", {.strategy = kFullShard}});
  int replicas = 2;
  while (replicas < ranks && ranks % replicas != 0) ++replicas;
  if (replicas < ranks) {
    const int shards = ranks / replicas;
    out.push_back({"hybrid_shard", {.strategy = kHybridShard, .shard_size = shards}});
    out.push_back({"hybrid_shard_zero2", {.strategy = kHybridShardZero2, .shard_size = shards}});
  }
  return out;
}

std::vector<StepBench> bench_in_turns(const std::vector<ShardingSetting>& settings,
                                      StepBenchOptions step, RankContext& rank) {
  const int64_t steps = step.steps, rounds = std::min(kBenchRounds, steps);
  std::vector<StepBench> out(settings.size());
  const int micro_steps = step.fsdp.micro_steps;
  const bool in_backward = step.fsdp.update_in_backward;
  for (int64_t round = 0; round < rounds; ++round) {
    step.steps = steps / rounds + (round < steps % rounds ? 1 : 0);
    for (size_t i = 0; i < settings.size(); ++i) {
      step.fsdp = settings[i].fsdp;
      step.fsdp.micro_steps = micro_steps;
      step.fsdp.update_in_backward = in_backward;
      step.recompute = settings[i].recompute;
      step.recompute_every = settings[i].recompute_every;
      append(out[i], settings[i].alone ? bench_alone(step, rank) : bench_step(step, rank));
    }
  }
  return out;
}

}  // namespace fsdp::tools
