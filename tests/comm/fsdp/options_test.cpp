// The table of placements, which is the README's, and the rules that follow from the options.
#include "comm/fsdp/options.h"

#include <algorithm>
#include <fstream>
#include <map>

#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using fsdp::test::error_of;

namespace {

UnitPolicy policy_of(const FsdpOptions& options, bool awaits_backward = false) {
  return unit_policy(options, {.shards = 4}, awaits_backward);
}

using Cells = std::array<std::string_view, 7>;

std::string_view text_of(Placement placement) {
  constexpr std::array<std::string_view, 5> kTexts = {"nowhere", "whole", "partial", "shard",
                                                      "inner shard"};
  return kTexts.at(static_cast<size_t>(placement));
}

Cells cells_of(const Placements& at) {
  const auto& [parameters, gradients, state] = at;
  return {text_of(parameters.at_rest),
          text_of(parameters.turn),
          text_of(parameters.pause),
          text_of(gradients.at_rest),
          text_of(gradients.pause),
          text_of(gradients.update),
          text_of(state)};
}

// A line of the README: what is as in `strategy` is left out.
std::string line_of(const std::string& name, const UnitPolicy& policy, const Cells& strategy = {}) {
  const Cells cells = cells_of(policy.at);
  std::string line = "| " + name + " |";
  for (size_t i = 0; i < cells.size(); ++i) {
    line += cells[i] == strategy[i] ? " |" : fmt::format(" {} |", cells[i]);
  }
  return line;
}

}  // namespace

TEST_CASE("fsdp options: the table of placements is the README's") {
  using enum Strategy;
  std::vector<std::string> lines = {
      line_of("`full_shard`, `hybrid_shard` (ZeRO-3, HSDP)", policy_of({})),
      line_of("`shard_grad_op`, `hybrid_shard_zero2` (ZeRO-2)",
              policy_of({.strategy = kShardGradOp})),
      line_of("`shard_optimizer` (ZeRO-1)", policy_of({.strategy = kShardOptimizer})),
      line_of("`no_shard` (DDP), and one rank in a shard group", unit_policy({}, {}, false))};
  const auto option = [&](const std::string& name, const FsdpOptions& options,
                          bool awaits_backward = false) {
    const Cells strategy = cells_of(policy_of({.strategy = options.strategy}).at);
    lines.push_back(line_of(name, policy_of(options, awaits_backward), strategy));
  };
  option("`reshard_after_forward: true`",
         {.strategy = kShardGradOp, .reshard_after_forward = true});
  option("`reshard_after_forward: false`", {.reshard_after_forward = false});
  option("`reshard_group_size` (hpZ)", {.reshard_group_size = 2});
  option("a unit that awaits its backward: the root, the head", {}, true);
  option("`accumulation: reduce_last`",
         {.accumulation = Accumulation::kReduceLast, .micro_steps = 2});
  option("`update_in_backward`, one micro-step", {.update_in_backward = true});
  option("forward passes only", {.training = false});
  constexpr std::array<std::string_view, 3> kHomes = {"device", "host", "file"};
  for (const OffloadRow& row : kOffloadRows) {
    const auto home = [&](Home of) { return kHomes.at(static_cast<size_t>(of)); };
    lines.push_back(fmt::format("| `{}` | {} | {} | {} |", row.name, home(row.parameters),
                                home(row.gradients), home(row.state)));
  }
  std::ifstream file(test::source_folder() / "comm/fsdp/README.md");
  std::vector<std::string> readme;
  for (std::string line; std::getline(file, line);) readme.push_back(line);
  for (const std::string& line : lines) {
    CAPTURE(line);
    CHECK(std::count(readme.begin(), readme.end(), line) == 1);
  }
}

TEST_CASE("fsdp options: a row for each strategy, and the shard groups of eight ranks") {
  const std::map<ShardGroups, GroupSizes> sizes = {{ShardGroups::kAllRanks, {8, 1}},
                                                   {ShardGroups::kSeveral, {4, 2}},
                                                   {ShardGroups::kEachRank, {1, 8}}};
  for (const StrategyRow& row : kStrategyRows) {
    CAPTURE(row.name);
    CHECK(&row_of(row.strategy) == &row);
    const int shard_size = row.groups == ShardGroups::kSeveral ? 4 : 0;
    const FsdpOptions options = {.strategy = row.strategy, .shard_size = shard_size};
    const GroupSizes groups = group_sizes(options, 8);
    CHECK(groups.shards == sizes.at(row.groups).shards);
    CHECK(groups.replicas == sizes.at(row.groups).replicas);
    // A part is the whole where a rank is alone, unless memory of the host is offloaded to.
    CHECK((unit_policy(options, groups, false).at == row.at));
    CHECK((unit_policy(options, {}, false).at == rows::kDdp));
    FsdpOptions offloaded = options;
    offloaded.offload = Offload::kAll;
    CHECK((unit_policy(offloaded, {}, false).at == row.at));
  }
  for (const OffloadRow& row : kOffloadRows) CHECK(&row_of(row.offload) == &row);
  // What is kept from one micro-step to the next is kept for ever, unless the arena is released.
  FsdpOptions zero2 = {.strategy = Strategy::kShardGradOp};
  CHECK(policy_of(zero2).resident());
  zero2.release_arena = true;
  CHECK_FALSE(policy_of(zero2).resident());
  CHECK(unit_policy({.release_arena = true}, {}, false).resident());
  CHECK(unit_policy({}, {}, false).averages_in_place);
  CHECK_FALSE(policy_of({}).averages_in_place);
  CHECK((policy_of({.accumulation = Accumulation::kReduceLast}) == policy_of({})));
  CHECK((policy_of({.micro_steps = 2}) == policy_of({})));
}

TEST_CASE("fsdp options: updates in backward leave no gradient that is kept, of one micro-step") {
  for (const Strategy strategy : kStrategies) {
    CAPTURE(choice_name(strategy));
    FsdpOptions options = {.strategy = strategy, .update_in_backward = true};
    for (const GroupSizes groups : {GroupSizes{}, {.shards = 2}}) {
      CHECK(unit_policy(options, groups, false).gives_gradients_back());
      CHECK(!unit_policy(options, groups, false).keeps_gradients());
      FsdpOptions several = options, after = options;
      several.micro_steps = after.micro_steps = 2;
      after.update_in_backward = false;
      CHECK(unit_policy(several, groups, false) == unit_policy(after, groups, false));
    }
  }
  const FsdpOptions scaled = {.update_in_backward = true, .detect_overflow = true};
  CHECK_THROWS_WITH(check_options(scaled, 1),
                    doctest::Contains("fsdp.update_in_backward: loss scaling needs"));
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
  const auto across = [&](GroupSizes groups) {
    return unit_policy(options, groups, false).at.gradients.pause_across;
  };
  CHECK(across({2, 2}) == Placement::kPartial);
  CHECK(across({4, 1}) == Placement::kWhole);
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
  CHECK(refusal({.micro_steps = 2, .fixed_order = true}) == "");
  CHECK(refusal({.accumulation = Accumulation::kReduceLast, .fixed_order = true}) ==
        "fsdp.fixed_order: accumulation: reduce_last adds micro-steps before ranks; expected "
        "reduce_each");
  const std::pair<const char*, FsdpOptions> fixed[] = {
      {"accumulation: reduce_scatter_each ",
       {.accumulation = Accumulation::kReduceScatterEach, .fixed_order = true}},
      {"divide_factor: ", {.divide_factor = 2, .fixed_order = true}},
      {"force_sum: ", {.force_sum = true, .fixed_order = true}},
      {"split_division: ", {.split_division = true, .fixed_order = true}}};
  for (const auto& [told, options] : fixed) {
    CHECK(refusal(options).starts_with(std::string("fsdp.fixed_order: ") + told));
  }
}

TEST_CASE("fsdp options: a rank that differs in any of them is told which") {
  const std::pair<const char*, FsdpOptions> changes[] = {
      {"strategy shard_grad_op", {.strategy = Strategy::kShardGradOp}},
      {"shard_size 2", {.shard_size = 2}},
      {"reshard_after_forward true", {.reshard_after_forward = true}},
      {"reshard_group_size 1", {.reshard_group_size = 1}},
      {"param_dtype f64", {.param_dtype = DType::kF64}},
      {"reduce_dtype bf16", {.reduce_dtype = DType::kBF16}},
      {"divide_factor 2.5", {.divide_factor = 2.5}},
      {"force_sum true", {.force_sum = true}},
      {"split_division true", {.split_division = true}},
      {"forward_prefetch 2", {.forward_prefetch = 2}},
      {"backward_prefetch none", {.backward_prefetch = BackwardPrefetch::kNone}},
      {"units_in_flight 3", {.units_in_flight = 3}},
      {"separate_reduce false", {.separate_reduce = false}},
      {"release_arena true", {.release_arena = true}},
      {"accumulation reduce_last", {.accumulation = Accumulation::kReduceLast}},
      {"micro_steps 3", {.micro_steps = 3}},
      {"absent_is_zero true", {.absent_is_zero = true}},
      {"detect_overflow true", {.detect_overflow = true}},
      {"fixed_order true", {.fixed_order = true}},
      {"master_dtype bf16", {.master_dtype = DType::kBF16}},
      {"rounding_seed 7", {.rounding_seed = 7}},
      {"unit root: strategy shard_optimizer",
       {.units = {{.match = "root", .strategy = Strategy::kShardOptimizer}}}},
  };
  for (const auto& [told, options] : changes) {
    CAPTURE(told);
    const std::string message = error_of([options = options] {
      run_local_ranks(2, [&](Communicator& world) {
        test::RunSpec s;
        if (world.rank() == 1) s.fsdp = options;
        test::RankRun run(world, s);
      });
    });
    CAPTURE(message);
    CHECK(message.find("the ranks have different options") != std::string::npos);
    CHECK(message.find(fmt::format("rank 1: {}", told)) != std::string::npos);
  }
}
