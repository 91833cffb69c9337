// Settings of the sharding benchmark, and that they take turns on the ranks that they are for.
#include "tools/bench/bench_sharding.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/sharded_run.h"

namespace fsdp::tools {

TEST_CASE("bench sharding: one rank is the base line; hybrid meshes where the ranks have factors") {
  const auto names = [](int ranks) {
    std::vector<std::string> out;
    for (const ShardingSetting& setting : sharding_settings("strategy", ranks)) {
      out.push_back(setting.name);
      CHECK(setting.alone == (setting.name == "one rank"));
      if (!setting.alone) CHECK_NOTHROW(comm::shard_group_size(setting.fsdp, ranks));
    }
    return out;
  };
  const std::vector<std::string> one = {"no_shard", "shard_optimizer", "shard_grad_op",
                                        "full_shard"};
  CHECK(names(1) == one);
  std::vector<std::string> expected = one;
  expected.insert(expected.begin(), "one rank");
  for (const int prime : {2, 3, 7}) CHECK(names(prime) == expected);
  expected.insert(expected.end(), {"hybrid_shard", "hybrid_shard_zero2"});
  for (const int product : {4, 6, 8, 9}) CHECK(names(product) == expected);
  CHECK(sharding_settings("strategy", 9).back().fsdp.shard_size == 3);
  CHECK(sharding_settings("strategy", 8).back().fsdp.shard_size == 4);
}

TEST_CASE("bench sharding: every kind of offload, compared with none of the same recompute") {
  const auto offload = sharding_settings("offload", 1);
  REQUIRE(offload.size() == 4);
  CHECK(offload[0].name == "none");
  CHECK(offload[3].name == "nvme");
  CHECK(offload[3].fsdp.offload == comm::Offload::kNvme);
  const auto memory = sharding_settings("memory", 1);
  REQUIRE(memory.size() == 16);
  CHECK(memory[6].name == "selective, all");
  for (size_t i = 0; i < memory.size(); ++i) {
    const ShardingSetting& base = memory[memory[i].base];
    CHECK(base.recompute == memory[i].recompute);
    CHECK(base.fsdp.offload == comm::Offload::kNone);
  }
}

TEST_CASE("bench sharding: the order of sums, in micro-steps") {
  const auto settings = sharding_settings("order", 2);
  REQUIRE(settings.size() == 2);
  CHECK(!settings[0].fsdp.fixed_order);
  CHECK(settings[1].fsdp.fixed_order);
  StepBenchOptions step = {.model = test::small_gpt2(),
                           .batch = 8,
                           .length = 7,
                           .fsdp = {.micro_steps = 2},
                           .steps = 3,
                           .speed_of_light = false,
                           .traced_steps = 1};
  step.model.embedding_dropout = step.model.attention_dropout = step.model.residual_dropout = 0;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    RankContext rank{.world = world, .local_ranks = 2};
    const std::vector<StepBench> benches = bench_in_turns(settings, step, rank);
    for (const StepBench& bench : benches) {
      CHECK(std::count_if(bench.traces[0].begin(), bench.traces[0].end(),
                          [](const TraceEvent& e) { return e.name == "embedding_backward"; }) == 2);
    }
    CHECK(benches[0].values.loss == doctest::Approx(benches[1].values.loss).epsilon(1e-6));
  });
}

TEST_CASE("bench sharding: every setting gets all steps, dealt out to the rounds") {
  StepBenchOptions step = {.model = test::small_gpt2(),
                           .batch = 4,
                           .length = 7,
                           .steps = 4,
                           .speed_of_light = false,
                           .traced_steps = 1};
  step.model.embedding_dropout = step.model.attention_dropout = step.model.residual_dropout = 0;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    RankContext rank{.world = world, .local_ranks = 2};
    const auto settings = sharding_settings("strategy", 2);
    const std::vector<StepBench> benches = bench_in_turns(settings, step, rank);
    REQUIRE(benches.size() == settings.size());
    for (size_t i = 0; i < settings.size(); ++i) {
      CAPTURE(settings[i].name);
      const bool measured = !settings[i].alone || world.rank() == 0;
      CHECK(benches[i].step_ms.size() == (measured ? 4 : 0));
      CHECK(benches[i].traces.size() == (measured ? kBenchRounds : 0));
      if (measured) CHECK(benches[i].values.loss > 0);
    }
  });
}

}  // namespace fsdp::tools
