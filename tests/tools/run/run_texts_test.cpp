// The lines at the end of a run, and ZeRO's formula.
#include "tools/run/run_texts.h"

#include <doctest/doctest.h>

namespace fsdp::tools {

TEST_CASE("run texts: losses, with what there is") {
  TrainTotals totals = {.steps = 3, .recent_losses = {2, 1, 3}};
  CHECK(format_losses(totals, 10, {}) ==
        "loss (nats per token)\n"
        "  training                    2.0000   mean of the last 3 steps\n");
  totals.validation_loss = 1.5;
  CHECK(format_losses(totals, 1, 1.25) ==
        "loss (nats per token)\n"
        "  training                    2.0000   of the last step\n"
        "  validation                  1.5000\n"
        "  bigram entropy              1.2500   validation text by the training text's token "
        "pairs\n");
}

TEST_CASE("run texts: how much of making batches was hidden") {
  CHECK(format_batch_times({.made_s = 1, .waited_s = 1}, 1) == "");
  CHECK(format_batch_times({.made_s = 0.5, .waited_s = 0.125}, 6) ==
        "making batches: 100.000 ms a step, 75.0 % of it hidden behind the steps\n");
  // Nothing was made; a step waited longer than the batch took.
  CHECK(format_batch_times({}, 2) ==
        "making batches: 0.000 ms a step, 100.0 % of it hidden behind the steps\n");
  CHECK(format_batch_times({.made_s = 1, .waited_s = 2}, 2) ==
        "making batches: 1000.000 ms a step, 0.0 % of it hidden behind the steps\n");
}

// Table 1 of the ZeRO paper: 7.5B parameters on 64 GPUs, in GB of 1e9 bytes.
TEST_CASE("run texts: ZeRO's published states") {
  using enum comm::Strategy;
  const auto gb = [](comm::Strategy strategy) {
    return static_cast<double>(states_by_formula(strategy, 64, 7'500'000'000)) / 1e9;
  };
  CHECK(gb(kNoShard) == doctest::Approx(120));
  CHECK(gb(kShardOptimizer) == doctest::Approx(31.4).epsilon(0.002));
  CHECK(gb(kShardGradOp) == doctest::Approx(16.6).epsilon(0.003));
  CHECK(gb(kFullShard) == doctest::Approx(1.88).epsilon(0.003));
  CHECK(gb(kHybridShardZero2) == gb(kShardGradOp));
  CHECK(gb(kHybridShard) == gb(kFullShard));
}

TEST_CASE("run texts: shard groups that lie on several hosts are said, with the ranks of hosts") {
  CHECK(spread_groups({"a", "a", "b", "b"}, 2) == "");
  CHECK(spread_groups({"a", "a", "b", "b"}, 4) == "");  // no replicas
  CHECK(spread_groups({"a", "a", "a", "b"}, 2) ==
        "fsdp.shard_size 2: 1 of 2 shard groups are on several hosts, the first has ranks 2 to 3: "
        "what it gathers crosses the network; ranks: 3 on a, 1 on b");
  CHECK(spread_groups({"a", "b", "a", "b"}, 2)
            .starts_with("fsdp.shard_size 2: 2 of 2 shard groups are on several hosts, the first "
                         "has ranks 0 to 1: "));
}

}  // namespace fsdp::tools
