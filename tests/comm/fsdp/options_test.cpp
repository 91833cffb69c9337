// The rules that follow from the options, by hand for each strategy.
#include "comm/fsdp/options.h"

#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using fsdp::test::error_of;

namespace {

constexpr int kWorld = 8;
constexpr int kGroup = 4;

// The README's table of strategies: what every rank holds whole.
struct Row {
  Strategy strategy;
  int shards;  // of kWorld ranks
  bool hybrid, parameters, gradients;
};
constexpr Row kTable[] = {
    {Strategy::kFullShard, kWorld, false, false, false},
    {Strategy::kShardGradOp, kWorld, false, true, false},
    {Strategy::kShardOptimizer, kWorld, false, true, true},
    {Strategy::kNoShard, 1, false, true, true},
    {Strategy::kHybridShard, kGroup, true, false, false},
    {Strategy::kHybridShardZero2, kGroup, true, true, false},
};

}  // namespace

TEST_CASE("fsdp options: what each strategy shards, and over how many ranks") {
  for (const Row& row : kTable) {
    CAPTURE(choice_name(row.strategy));
    const FsdpOptions options = {.strategy = row.strategy, .shard_size = row.hybrid ? kGroup : 0};
    CHECK(is_hybrid(row.strategy) == row.hybrid);
    const GroupSizes groups = group_sizes(options, kWorld);
    CHECK(groups.shards == row.shards);
    CHECK(groups.replicas == kWorld / row.shards);
    for (const bool root : {true, false}) {
      const UnitPolicy policy = unit_policy(options, groups, root);
      CHECK(policy.keeps_parameters == row.parameters);
      CHECK(policy.resident == row.parameters);
      CHECK(policy.reshards_after_forward == (!row.parameters && !root));
      CHECK(policy.keeps_gradients == row.gradients);
      CHECK(policy.averages_in_place == (row.shards == 1));
      const UnitPolicy alone = unit_policy(options, {}, root);  // a part is the whole
      CHECK(alone.resident);
      CHECK(alone.keeps_gradients);
    }
  }
}

TEST_CASE("fsdp options: reshard_after_forward and accumulation override the strategy") {
  const auto policy = [](const FsdpOptions& options) {
    return unit_policy(options, {.shards = 2}, false);
  };
  CHECK(policy({.reshard_after_forward = false}).keeps_parameters);
  CHECK(!policy({.strategy = Strategy::kShardGradOp, .reshard_after_forward = true})
             .keeps_parameters);
  CHECK(!policy({.strategy = Strategy::kShardGradOp, .release_arena = true}).resident);
  const FsdpOptions last = {.accumulation = Accumulation::kReduceLast, .micro_steps = 2};
  CHECK(policy(last).reduces_last);
  CHECK(policy(last).keeps_gradients);
  CHECK(!policy({.accumulation = Accumulation::kReduceLast}).reduces_last);  // of one micro-step
  CHECK(!policy({.micro_steps = 2}).keeps_gradients);
}

TEST_CASE("fsdp options: updates in backward leave no gradient that is kept, of one micro-step") {
  for (const Strategy strategy : kStrategies) {
    CAPTURE(choice_name(strategy));
    FsdpOptions options = {.strategy = strategy, .update_in_backward = true};
    for (const GroupSizes groups : {GroupSizes{}, {.shards = 2}}) {
      CHECK(unit_policy(options, groups, false).gives_gradients_back);
      CHECK(!unit_policy(options, groups, false).keeps_gradients);
      FsdpOptions several = options, after = options;
      several.micro_steps = after.micro_steps = 2;
      after.update_in_backward = false;
      CHECK(unit_policy(several, groups, false) == unit_policy(after, groups, false));
    }
  }
  const FsdpOptions scaled = {.update_in_backward = true, .detect_overflow = true};
  CHECK_THROWS_WITH(check_options(scaled, 1),
                    "fsdp.update_in_backward: the gradients of all units say whether one "
                    "overflowed; expected no loss scaling");
}

TEST_CASE("fsdp options: dtypes of masters, of gradients that add up, and chance") {
  FsdpOptions options = {.param_dtype = DType::kBF16,
                         .reduce_dtype = DType::kBF16,
                         .micro_steps = 2,
                         .rounding_seed = 3};
  UnitPolicy policy = unit_policy(options, {.shards = 2}, false);
  CHECK(policy.master_dtype == DType::kF32);
  CHECK(policy.gradient_dtype == DType::kBF16);
  CHECK(policy.rounding_seed == 3);
  options.accumulation = Accumulation::kReduceLast;
  policy = unit_policy(options, {}, false);
  CHECK(policy.gradient_dtype == DType::kF32);
  CHECK(policy.reduce_dtype == DType::kBF16);
  CHECK(!policy.averages_in_place);
  options.param_dtype = DType::kF32;
  CHECK(!unit_policy(options, {}, false).rounding_seed);
  // Masters of 16 bits are rounded by the optimizer; shards of gradients keep theirs.
  options.param_dtype = options.master_dtype.emplace(DType::kBF16);
  policy = unit_policy(options, {}, false);
  CHECK(policy.master_dtype == DType::kBF16);
  CHECK(policy.sum_dtype == DType::kF32);
  CHECK(policy.gradient_dtype == DType::kF32);
  CHECK(!policy.rounding_seed);
  options.master_dtype = DType::kF64;
  CHECK(error_of([&] { check_options(options, 1); }) ==
        "[fsdp] master_dtype: expected f32 or a dtype that accumulates in it, got f64");
}

TEST_CASE("fsdp options: replicas that wait, and one chain of sums over all ranks") {
  FsdpOptions options = {.strategy = Strategy::kHybridShard,
                         .shard_size = 2,
                         .accumulation = Accumulation::kReduceScatterEach};
  CHECK(unit_policy(options, {2, 2}, false).defers_replicas);
  CHECK(!unit_policy(options, {4, 1}, false).defers_replicas);
  options = {.strategy = Strategy::kHybridShard,
             .shard_size = 2,
             .reduce_dtype = DType::kF16,
             .fixed_order = true};
  const UnitPolicy policy = unit_policy(options, {2, 2}, false);
  CHECK(policy.sums_in_order);
  CHECK(policy.parts_of_shard == 2);
  CHECK((policy.division == GradientDivision{}));
  CHECK(policy.alignment == kNormBlock);
  CHECK(unit_policy(options, {4, 1}, false).parts_of_shard == 1);
  options.fixed_order = false;
  CHECK(!unit_policy(options, {2, 2}, false).sums_in_order);
  CHECK(unit_policy(options, {2, 2}, false).parts_of_shard == 1);
}

TEST_CASE("fsdp options: groups that the ranks do not form are refused by name") {
  const auto refusal = [](const FsdpOptions& options) {
    return error_of([&] { shard_group_size(options, 8); });
  };
  CHECK(refusal({.strategy = Strategy::kHybridShard}) ==
        "fsdp.shard_size: a hybrid strategy needs the number of ranks of a shard group");
  CHECK(refusal({.strategy = Strategy::kHybridShard, .shard_size = 3}) ==
        "fsdp.shard_size: expected a divisor of 8 ranks, got 3");
  CHECK(refusal({.strategy = Strategy::kHybridShard, .shard_size = 16}) ==
        "fsdp.shard_size: expected a divisor of 8 ranks, got 16");
  CHECK(refusal({.shard_size = 4}) ==
        "fsdp.shard_size: expected 0 unless the strategy is hybrid, got 4");
  CHECK(refusal({.shard_size = 8}) == "");
}

TEST_CASE("fsdp options: inner groups") {
  const auto size_of_group = [](const FsdpOptions& options, bool root = false) {
    return unit_policy(options, {.shards = 8}, root).inner_group;
  };
  CHECK(size_of_group({}) == 0);
  CHECK(size_of_group({.reshard_group_size = 2}) == 2);
  CHECK(size_of_group({.reshard_group_size = 2}, true) == 0);  // the root stays gathered
  CHECK(size_of_group({.reshard_group_size = 8}) == 0);        // the shard group itself
  CHECK(size_of_group({.reshard_after_forward = false, .reshard_group_size = 2}) == 0);
  for (const int size : {3, 16}) {
    CHECK(error_of([&] { check_options({.reshard_group_size = size}, 8); }) ==
          fmt::format("fsdp.reshard_group_size: expected a divisor of the ranks of a shard group, "
                      "8, got {}",
                      size));
  }
}

TEST_CASE("fsdp options: what does not fit together is refused by name") {
  const auto refusal = [](const FsdpOptions& options) {
    return error_of([&] { check_options(options, 4); });
  };
  CHECK(refusal({}) == "");
  CHECK(refusal({.shard_size = 2}).starts_with("fsdp.shard_size: "));
  CHECK(refusal({.reshard_group_size = 3}).starts_with("fsdp.reshard_group_size: "));
  CHECK(refusal({.units_in_flight = 0}) == "fsdp.units_in_flight: expected at least 1, got 0");
  const FsdpOptions fixed = {.micro_steps = 2, .fixed_order = true};
  CHECK(refusal(fixed) == "");
  const auto refused_with = [&](auto&& change) {
    FsdpOptions options = fixed;
    change(options);
    return refusal(options);
  };
  CHECK(refused_with([](FsdpOptions& o) { o.accumulation = Accumulation::kReduceLast; }) ==
        "fsdp.fixed_order: accumulation: reduce_last adds micro-steps before ranks; expected "
        "reduce_each");
  CHECK(refused_with([](FsdpOptions& o) {
          o.accumulation = Accumulation::kReduceScatterEach;
        }).starts_with("fsdp.fixed_order: accumulation: reduce_scatter_each "));
  CHECK(refused_with([](FsdpOptions& o) {
          o.divide_factor = 2;
        }).starts_with("fsdp.fixed_order: divide_factor: "));
  CHECK(refused_with([](FsdpOptions& o) {
          o.force_sum = true;
        }).starts_with("fsdp.fixed_order: force_sum: "));
  CHECK(refused_with([](FsdpOptions& o) {
          o.split_division = true;
        }).starts_with("fsdp.fixed_order: split_division: "));
}

TEST_CASE("fsdp options: a rank that differs in any of them is told which") {
  using Change = void (*)(FsdpOptions&);
  const std::pair<const char*, Change> changes[] = {
      {"strategy shard_grad_op", [](FsdpOptions& o) { o.strategy = Strategy::kShardGradOp; }},
      {"shard_size 2", [](FsdpOptions& o) { o.shard_size = 2; }},
      {"reshard_after_forward true", [](FsdpOptions& o) { o.reshard_after_forward = true; }},
      {"reshard_group_size 1", [](FsdpOptions& o) { o.reshard_group_size = 1; }},
      {"param_dtype f64", [](FsdpOptions& o) { o.param_dtype = DType::kF64; }},
      {"reduce_dtype bf16", [](FsdpOptions& o) { o.reduce_dtype = DType::kBF16; }},
      {"divide_factor 2.5", [](FsdpOptions& o) { o.divide_factor = 2.5; }},
      {"force_sum true", [](FsdpOptions& o) { o.force_sum = true; }},
      {"split_division true", [](FsdpOptions& o) { o.split_division = true; }},
      {"forward_prefetch 2", [](FsdpOptions& o) { o.forward_prefetch = 2; }},
      {"backward_prefetch none",
       [](FsdpOptions& o) { o.backward_prefetch = BackwardPrefetch::kNone; }},
      {"units_in_flight 3", [](FsdpOptions& o) { o.units_in_flight = 3; }},
      {"separate_reduce false", [](FsdpOptions& o) { o.separate_reduce = false; }},
      {"release_arena true", [](FsdpOptions& o) { o.release_arena = true; }},
      {"accumulation reduce_last",
       [](FsdpOptions& o) { o.accumulation = Accumulation::kReduceLast; }},
      {"micro_steps 3", [](FsdpOptions& o) { o.micro_steps = 3; }},
      {"absent_is_zero true", [](FsdpOptions& o) { o.absent_is_zero = true; }},
      {"detect_overflow true", [](FsdpOptions& o) { o.detect_overflow = true; }},
      {"fixed_order true", [](FsdpOptions& o) { o.fixed_order = true; }},
      {"master_dtype bf16", [](FsdpOptions& o) { o.master_dtype = DType::kBF16; }},
      {"rounding_seed 7", [](FsdpOptions& o) { o.rounding_seed = 7; }},
      {"unit root: strategy shard_optimizer",
       [](FsdpOptions& o) {
         o.units = {{.match = "root", .strategy = Strategy::kShardOptimizer}};
       }},
  };
  for (const auto& [told, change] : changes) {
    CAPTURE(told);
    const std::string message = error_of([change = change] {
      run_local_ranks(2, [&](Communicator& world) {
        test::RunSpec s;
        if (world.rank() == 1) change(s.fsdp);
        test::RankRun run(world, s);
      });
    });
    CAPTURE(message);
    CHECK(message.find("the ranks have different options") != std::string::npos);
    CHECK(message.find(fmt::format("rank 1: {}", told)) != std::string::npos);
  }
}
