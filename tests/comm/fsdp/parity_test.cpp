// Parity with one rank: sharded training is the training of one rank that runs every rank's part of
// the batch and adds the gradients in rank order. To the bit with fixed_order, closely and the same
// every time without it. Guards against anything that sharding could lose or mix up: padding,
// slots, casts, the order of sums, the division. One table of runs: a new model, dtype, optimizer
// or strategy is a row.
// Requirements: S0.3, S1.9, S4.10.
#include <doctest/doctest.h>

#include "optim/optimizer_kind.h"
#include "tests/support/removed_waits.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

using enum Strategy;
using enum DType;
using optim::OptimizerKind, optim::OptimizerOptions;

const std::vector<FsdpOptions> kSharding = {
    {}, {.strategy = kShardGradOp}, {.strategy = kShardOptimizer}, {.strategy = kNoShard}};
const std::vector<FsdpOptions> kEnds = {{}, {.strategy = kNoShard}};

std::vector<FsdpOptions> hybrids(std::vector<int> shard_sizes) {
  std::vector<FsdpOptions> out;
  for (const int size : shard_sizes) {
    for (const Strategy strategy : {kHybridShard, kHybridShardZero2}) {
      out.push_back({.strategy = strategy, .shard_size = size});
    }
  }
  return out;
}

struct Row {
  models::ModelConfig model;
  DType param = kF32, reduce = kF32;
  OptimizerOptions optimizer = {.epsilon = 1e-4};
  std::vector<int> ranks;
  std::vector<FsdpOptions> ways;
};

std::vector<Row> table() {
  const std::vector<int> sizes = {1, 2, 3, 4, 8};
  const models::ModelConfig gpt2 = small_gpt2(), llama = small_llama(), qwen2 = small_qwen2();
  std::vector<Row> out = {
      {.model = gpt2, .ranks = sizes, .ways = kSharding},
      {.model = llama, .ranks = sizes, .ways = kSharding},
      {.model = gpt2, .param = kF64, .reduce = kF64, .ranks = sizes, .ways = kSharding},
      {.model = llama, .param = kF64, .reduce = kF64, .ranks = {4}, .ways = kSharding},
      {.model = gpt2, .param = kF32, .reduce = kBF16, .ranks = sizes, .ways = kSharding},
      {.model = gpt2, .param = kBF16, .reduce = kF32, .ranks = sizes, .ways = kSharding},
      {.model = gpt2, .param = kBF16, .reduce = kBF16, .ranks = sizes, .ways = kSharding},
      {.model = gpt2, .param = kF64, .reduce = kF64, .ranks = {4}, .ways = hybrids({2})},
      {.model = gpt2, .param = kF32, .reduce = kBF16, .ranks = {4}, .ways = hybrids({2})},
      {.model = gpt2, .param = kBF16, .reduce = kF32, .ranks = {4}, .ways = hybrids({2})},
      {.model = gpt2, .param = kBF16, .reduce = kBF16, .ranks = {4}, .ways = hybrids({2})},
      {.model = gpt2, .ranks = {4}, .ways = hybrids({2})},
      {.model = llama, .ranks = {4}, .ways = hybrids({2})},
      {.model = llama, .param = kF64, .reduce = kF64, .ranks = {4}, .ways = hybrids({2})},
      {.model = gpt2, .ranks = {8}, .ways = hybrids({2, 4})},
      {.model = qwen2, .ranks = {3}, .ways = kSharding},
      {.model = qwen2, .param = kF64, .reduce = kF64, .ranks = {4}, .ways = hybrids({2})},
      {.model = qwen2, .param = kBF16, .reduce = kBF16, .ranks = {2}, .ways = kSharding}};
  for (const OptimizerOptions& optimizer :
       std::vector<OptimizerOptions>{{.kind = OptimizerKind::kAdam, .epsilon = 1e-4},
                                     {.kind = OptimizerKind::kAdamax, .epsilon = 1e-4},
                                     {.kind = OptimizerKind::kAdadelta, .epsilon = 1e-6},
                                     {.kind = OptimizerKind::kSgd},
                                     {.kind = OptimizerKind::kSgd, .momentum = 0.9}}) {
    out.push_back({.model = gpt2, .optimizer = optimizer, .ranks = {3}, .ways = kEnds});
  }
  return out;
}

// Calls `check` with a run that is compared and what one rank makes of its batches.
template <typename Check>
void on_every_row(bool fixed_order, const Check& check) {
  for (const Row& row : table()) {
    for (const int ranks : row.ranks) {
      RunSpec spec;
      spec.subject = causal_lm(row.model);
      spec.ranks = ranks;
      spec.rows = 24;
      // Dropout follows the sample, not the rank. It hides what a slow rule wins in three steps.
      spec.training = row.optimizer.kind == OptimizerKind::kAdamW;
      spec.optimizer = row.optimizer;
      spec.fsdp = {.param_dtype = row.param, .reduce_dtype = row.reduce, .fixed_order = true};
      const RunResult expected = train_as_one_rank(spec);
      CHECK(expected.losses.back() < expected.losses.front());
      for (const FsdpOptions& way : row.ways) {
        spec.fsdp = way;
        spec.fsdp.param_dtype = row.param;
        spec.fsdp.reduce_dtype = row.reduce;
        spec.fsdp.fixed_order = fixed_order;
        CAPTURE(row.model.family);
        CAPTURE(name_of(row.param));
        CAPTURE(name_of(row.reduce));
        CAPTURE(optim::name_of(row.optimizer.kind));
        CAPTURE(ranks);
        CAPTURE(choice_name(way.strategy));
        CAPTURE(way.shard_size);
        check(spec, expected);
      }
    }
  }
}

}  // namespace

TEST_CASE("parity: every run of the table has the bits of one rank") {
  on_every_row(/*fixed_order=*/true, [](const RunSpec& spec, const RunResult& expected) {
    CHECK((train(spec) == expected));
  });
}

TEST_CASE("parity: in the order of the collectives a run is close to one rank, and repeats") {
  on_every_row(/*fixed_order=*/false, [](const RunSpec& spec, const RunResult& expected) {
    // With 16 bits another order of a sum is another rounding.
    if (spec.fsdp.param_dtype == kBF16 || spec.fsdp.reduce_dtype == kBF16) return;
    const double tolerance = spec.fsdp.param_dtype == kF64 ? 1e-11 : 1e-5;
    const RunResult result = train(spec);
    CHECK(loss_difference(result, expected) <= tolerance);
    CHECK(norm_difference(result, expected) <= tolerance);
    // That build's products are Eigen's. Of a small gradient AdamW makes a whole step, whose last
    // digits are those of the gradient.
    const double of_parameters = kThreadSanitizer ? 2 * tolerance : tolerance;
    CHECK(largest_difference(result.parameters, expected.parameters) <= of_parameters);
    if (spec.ranks == 3 || is_hybrid(spec.fsdp.strategy)) CHECK((train(spec) == result));
  });
}

TEST_CASE("parity: twenty steps of every strategy learn, and stay close to one rank") {
  for (const int ranks : {3, 4}) {
    RunSpec spec;
    spec.ranks = ranks;
    spec.steps = 20;
    const RunResult expected = train_as_one_rank(spec);
    CHECK(expected.losses.back() <= 0.8 * expected.losses.front());
    for (const FsdpOptions& way : ranks == 3 ? kSharding : hybrids({2})) {
      CAPTURE(choice_name(way.strategy));
      spec.fsdp = way;
      const RunResult result = train(spec);
      CHECK(loss_difference(result, expected) <= 1e-5);
      CHECK(largest_difference(result.parameters, expected.parameters) <= 1e-5);
    }
  }
}

TEST_CASE("parity: another optimizer or order of the rows is another result: the table can fail") {
  std::vector<std::vector<double>> losses;
  for (const Row& row : table()) {
    if (row.ways.size() != kEnds.size() || row.ranks != std::vector<int>{3}) continue;
    RunSpec spec;
    spec.optimizer = row.optimizer;
    losses.push_back(train(spec).losses);
    CHECK(std::count(losses.begin(), losses.end(), losses.back()) == 1);
  }
  CHECK(losses.size() == 5);
  RunSpec spec;
  spec.ranks = 4;
  spec.rows = 24;
  spec.fsdp.fixed_order = true;
  RunSpec other = spec;
  other.ranks = 2;
  CHECK_FALSE((train(other) == train_as_one_rank(spec)));
}
