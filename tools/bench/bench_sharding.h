// Training steps under several settings of the sharding layer, in turns: a machine that slows down
// slows all of them down. Read next: tools/bench/bench_step.h. Not here: printing
// (tools/commands/bench_sharding.cpp).
#pragma once

#include <string>
#include <vector>

#include "tools/bench/bench_step.h"

namespace fsdp::tools {

struct ShardingSetting {
  std::string name;
  comm::FsdpOptions fsdp = {};
  RecomputeMode recompute = RecomputeMode::kNone;
  int64_t recompute_every = 1;
  bool alone = false;  // the whole batch on the first rank, with the threads of all
  size_t base = 0;     // the row whose time this one's is compared with
};

// vary: "strategy", "schedule", "recompute", "order" (of the sums of gradients), "offload", or
// "memory": every kind of recompute with every kind of offload. Strategies: that of one rank first;
// hybrid ones where the number of ranks is a product.
std::vector<ShardingSetting> sharding_settings(const std::string& vary, int ranks);

// By setting; of those alone on the first rank only. All have micro_steps and update_in_backward of
// step.fsdp. Goes through all settings kBenchRounds times (fewer when `step` has fewer steps) and
// deals the steps out to the rounds; step.traced_steps are those of each round. Collective.
constexpr int64_t kBenchRounds = 3;
std::vector<StepBench> bench_in_turns(const std::vector<ShardingSetting>& settings,
                                      StepBenchOptions step, RankContext& rank);

}  // namespace fsdp::tools
