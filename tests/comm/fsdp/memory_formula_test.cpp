// The memory formula against the ledger of real steps, to the byte.
#include "tests/support/memory_formula.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/sharded_run.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {
namespace {

struct Case {
  int ranks = 1;
  comm::Strategy strategy = comm::Strategy::kFullShard;
  DType dtype = DType::kF32;
  DType reduce_dtype = DType::kF32;
  int64_t layers = 3;
  comm::WrapPolicy wrap = {};   // a unit per block
  comm::FsdpOptions more = {};  // micro_steps, accumulation, shard_size, ...
  std::vector<std::string> frozen = {};
  double loss_scale = 0;
  std::optional<models::LoraConfig> lora = {};
  int64_t rows = 1;  // of a micro-step, of 7 positions
  bool tied = true;
  int64_t positions = 7;  // of the table
  bool head_bias = false;
  optim::OptimizerOptions optimizer = {};
};

PlacedOptions session_options(const Case& c) {
  PlacedOptions options;
  models::ModelConfig& model = options.model;
  model = models::family_defaults("gpt2");
  model.vocabulary = 19;
  model.hidden = 20;  // odd in every respect: padding and alignment gaps
  model.layers = c.layers;
  model.heads = model.kv_heads = 5;
  model.head_dim = 4;
  model.ffn = 52;
  options.max_length = 7;
  model.max_positions = c.positions;
  model.tied_head = c.tied;
  model.head_bias = c.head_bias;
  options.wrap = c.wrap;
  options.fsdp = c.more;
  options.fsdp.strategy = c.strategy;
  options.fsdp.param_dtype = c.dtype;
  options.fsdp.reduce_dtype = c.reduce_dtype;
  options.frozen = c.frozen;
  options.lora = c.lora;
  options.loss_scale.initial = c.loss_scale;
  options.optimizer = c.optimizer;
  return options;
}

void check_against_ledger(const Case& c) {
  CAPTURE(c.ranks);
  CAPTURE(static_cast<int>(c.strategy));
  CAPTURE(name_of(c.dtype));
  CAPTURE(name_of(c.reduce_dtype));
  comm::run_local_ranks(c.ranks, [&](comm::Communicator& world) {
    Session session = place_session(world, session_options(c));
    session.initialise(models::from_scratch(1));
    const int64_t rows = c.rows * c.more.micro_steps;
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < 7 * rows; ++i) tokens.push_back(static_cast<int32_t>(i * i % 19));
    const Batch batch = {.rows = rows,
                         .length = 7,
                         .tokens = tokens,
                         .labels = tokens,
                         .global_label_tokens = 6 * rows * c.ranks};
    for (uint32_t step = 0; step < 2; ++step) session.train_step(batch, 1e-3, step).read();
    const MemoryPlan plan =
        memory_plan(session.sharded(), session.model().config(), c.optimizer, c.rows * 7);
    const auto predicted = predicted_memory(plan);
    const auto bounds = upper_bounds(plan);
    const MemoryUsage counted = session.backend().ledger().usage();
    CAPTURE(world.rank());
    for (size_t i = 0; i < kMemoryCategories; ++i) {
      if (!has_formula(static_cast<MemoryCategory>(i))) continue;
      CAPTURE(name_of(static_cast<MemoryCategory>(i)));
      if (bounds[i]) {
        CHECK(predicted[i] >= counted.peak[i]);
        CHECK(predicted[i] - plan.wide.peak() <= counted.peak[i]);
      } else {
        CHECK(predicted[i] == counted.peak[i]);
      }
    }
  });
}

TEST_CASE("memory formula: full_shard, to the byte of the ledger") {
  for (const int ranks : {1, 2, 3}) {
    check_against_ledger({.ranks = ranks});
    check_against_ledger({.ranks = ranks, .dtype = DType::kBF16});
    check_against_ledger({.ranks = ranks, .dtype = DType::kBF16, .reduce_dtype = DType::kBF16});
    check_against_ledger({.ranks = ranks, .dtype = DType::kF64, .reduce_dtype = DType::kF64});
  }
}

TEST_CASE("memory formula: no_shard, to the byte of the ledger") {
  for (const int ranks : {1, 2}) {
    const comm::Strategy strategy = comm::Strategy::kNoShard;
    check_against_ledger({.ranks = ranks, .strategy = strategy});
    check_against_ledger({.ranks = ranks, .strategy = strategy, .dtype = DType::kBF16});
  }
}

TEST_CASE("memory formula: fewer blocks than arena buffers, and no blocks") {
  check_against_ledger({.ranks = 2, .layers = 1});
  check_against_ledger({.ranks = 2, .wrap = comm::wrap_nothing()});
}

TEST_CASE("memory formula: units inside units, one of them without parameters") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    check_against_ledger({.ranks = 2, .dtype = dtype, .wrap = comm::wrap_by_size(1600)});
    check_against_ledger(
        {.ranks = 3,
         .dtype = dtype,
         .wrap = comm::wrap_classes({"GPT2Block", "GPT2Attention", "Conv1D", "LayerNorm"})});
  }
}

TEST_CASE("memory formula: every strategy, kind of accumulation and dtype") {
  using enum comm::Strategy;
  struct Way {
    int ranks;
    comm::Strategy strategy;
    comm::FsdpOptions more;
  };
  for (const Way& way :
       {Way{3, kShardGradOp, {}}, Way{2, kShardOptimizer, {}},
        Way{4, kHybridShard, {.shard_size = 2}}, Way{4, kHybridShardZero2, {.shard_size = 2}},
        Way{4, kFullShard, {.reshard_group_size = 2}},
        Way{2, kFullShard, {.reshard_after_forward = false}},
        Way{2, kFullShard, {.units_in_flight = 1}}, Way{3, kFullShard, {.fixed_order = true}},
        Way{3, kNoShard, {.fixed_order = true}},
        Way{4, kHybridShard, {.shard_size = 2, .fixed_order = true}}}) {
    for (const auto accumulation :
         {comm::Accumulation::kReduceEach, comm::Accumulation::kReduceLast}) {
      const bool refused = accumulation == comm::Accumulation::kReduceLast;
      if (way.more.fixed_order && refused) continue;
      for (const auto& [dtype, reduce] :
           {std::pair{DType::kF32, DType::kF32}, std::pair{DType::kBF16, DType::kBF16}}) {
        Case c = {.ranks = way.ranks,
                  .strategy = way.strategy,
                  .dtype = dtype,
                  .reduce_dtype = reduce,
                  .more = way.more};
        c.more.accumulation = accumulation;
        c.more.micro_steps = accumulation == comm::Accumulation::kReduceLast ? 2 : 1;
        check_against_ledger(c);
      }
    }
  }
}

TEST_CASE("memory formula: units with options of their own") {
  using enum comm::Strategy;
  const std::vector<std::vector<comm::UnitOverride>> ways = {
      {{.match = "blocks.1", .reshard_after_forward = false}},
      {{.match = "blocks.[12]", .strategy = kShardGradOp}},  // one block is left in the arena
      {{.match = "GPT2Block", .strategy = kShardOptimizer}},
      {{.match = "root", .param_dtype = DType::kF32, .reduce_dtype = DType::kF32}},
      {{.match = "blocks.0", .param_dtype = DType::kF32, .reduce_dtype = DType::kF32},
       {.match = "blocks.2", .reshard_group_size = 2}}};
  for (const auto& units : ways) {
    for (const DType reduce : {DType::kF32, DType::kBF16}) {
      check_against_ledger(
          {.ranks = 4, .dtype = DType::kBF16, .reduce_dtype = reduce, .more = {.units = units}});
    }
    check_against_ledger({.dtype = DType::kBF16, .more = {.units = units}});  // one rank
  }
}

TEST_CASE("memory formula: frozen parameters, and loss scaling") {
  for (const comm::Strategy strategy : {comm::Strategy::kFullShard, comm::Strategy::kNoShard}) {
    check_against_ledger({.ranks = 2,
                          .strategy = strategy,
                          .dtype = DType::kBF16,
                          .frozen = {"*.wte.*", "*.h.1.mlp.*", "*.h.2.*"}});
    check_against_ledger(
        {.ranks = 2, .strategy = strategy, .dtype = DType::kF16, .loss_scale = 16});
  }
}

TEST_CASE("memory formula: low-rank terms in a frozen model") {
  for (const comm::Strategy strategy : {comm::Strategy::kFullShard, comm::Strategy::kNoShard}) {
    for (const auto& [dtype, reduce] :
         {std::pair{DType::kF32, DType::kF32}, std::pair{DType::kBF16, DType::kBF16}}) {
      check_against_ledger({.ranks = 3,
                            .strategy = strategy,
                            .dtype = dtype,
                            .reduce_dtype = reduce,
                            .lora = models::LoraConfig{.r = 3, .targets = {"c_attn", "c_fc"}}});
    }
  }
}

TEST_CASE("memory formula: gradients that are made wide and rounded, of an untied head too") {
  using enum DType;
  for (const auto& [dtype, reduce] :
       {std::pair{kF32, kBF16}, std::pair{kF32, kF16}, std::pair{kF64, kF32},
        std::pair{kBF16, kF16}, std::pair{kBF16, kBF16}, std::pair{kBF16, kF32}}) {
    for (const bool tied : {true, false}) {
      for (const int64_t rows : {1, 9, 10, 30}) {  // 64 positions of the head are computed at once
        CAPTURE(tied);
        CAPTURE(rows);
        Case c = {.ranks = 2, .dtype = dtype, .reduce_dtype = reduce, .rows = rows, .tied = tied};
        check_against_ledger(c);
        if (rows == 9) continue;
        c.strategy = comm::Strategy::kShardOptimizer;
        check_against_ledger(c);
        c.frozen = {"*.mlp.*", "*.attn.*", "*.wte.*", "*.wpe.*", "lm_head.*"};
        if (tied) c.frozen.pop_back();
        check_against_ledger(c);
      }
    }
  }
}

// As wide as the model is, so that half of it is seen; and alone when nothing else is trained.
TEST_CASE("memory formula: a head with a bias") {
  using enum DType;
  for (const auto& [dtype, reduce] : {std::pair{kF32, kF32}, std::pair{kBF16, kBF16},
                                      std::pair{kBF16, kF16}, std::pair{kF32, kBF16}}) {
    for (const bool tied : {true, false}) {
      for (const int64_t rows : {1, 30}) {
        CAPTURE(tied);
        CAPTURE(rows);
        Case c = {.ranks = 2,
                  .dtype = dtype,
                  .reduce_dtype = reduce,
                  .rows = rows,
                  .tied = tied,
                  .head_bias = true};
        check_against_ledger(c);
        c.strategy = comm::Strategy::kNoShard;
        check_against_ledger(c);
        c.frozen = {"*.h.*", "*.wpe.*", "*.wte.*", "*.ln_f.*"};
        if (!tied) c.frozen.push_back("lm_head.weight");
        check_against_ledger(c);
      }
    }
  }
}

TEST_CASE("memory formula: the arena released") {
  using enum comm::Strategy;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const comm::Strategy strategy : {kFullShard, kShardGradOp, kShardOptimizer, kNoShard}) {
      check_against_ledger(
          {.ranks = 2, .strategy = strategy, .dtype = dtype, .more = {.release_arena = true}});
    }
  }
}

TEST_CASE("memory formula: the arena released, sums of micro-steps narrowed for the reduce") {
  using enum comm::Strategy;
  for (const comm::Strategy strategy : {kFullShard, kShardGradOp, kShardOptimizer, kNoShard}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      check_against_ledger({.ranks = 2,
                            .strategy = strategy,
                            .dtype = dtype,
                            .reduce_dtype = DType::kBF16,
                            .more = {.release_arena = true,
                                     .accumulation = comm::Accumulation::kReduceLast,
                                     .micro_steps = 2}});
    }
  }
}

TEST_CASE("memory formula: the arena released, units in units and units that keep theirs") {
  using enum comm::Strategy;
  const comm::WrapPolicy wraps[] = {
      comm::wrap_classes({"GPT2Block", "GPT2MLP"}),
      comm::wrap_classes({"GPT2Block", "GPT2Attention", "Conv1D", "LayerNorm"})};
  const std::vector<std::vector<comm::UnitOverride>> ways = {
      {},
      {{.match = "GPT2Block", .reshard_after_forward = false}},
      {{.match = "*.mlp*", .reshard_after_forward = false}},
      {{.match = "root", .reshard_after_forward = false},
       {.match = "blocks.[12]*", .strategy = kShardOptimizer}}};
  for (const comm::WrapPolicy& wrap : wraps) {
    for (const auto& units : ways) {
      for (const int in_flight : {1, 3}) {
        CAPTURE(units.size());
        check_against_ledger(
            {.ranks = 2,
             .wrap = wrap,
             .more = {.units_in_flight = in_flight, .release_arena = true, .units = units}});
      }
    }
  }
}

TEST_CASE("memory formula: gradients made wide in some units; a table wider than any matrix") {
  using enum DType;
  const std::vector<std::vector<comm::UnitOverride>> ways = {
      {},
      {{.match = "blocks.1", .param_dtype = kF32}},
      {{.match = "root", .param_dtype = kF32}},
      {{.match = "blocks.*", .param_dtype = kF32}}};
  for (const bool release_arena : {false, true}) {
    for (const DType dtype : {kBF16, kF32}) {
      for (const bool tied : {true, false}) {
        for (const auto& units : ways) {
          CAPTURE(release_arena);
          CAPTURE(tied);
          CAPTURE((units.empty() ? "" : units[0].match));
          Case c = {.ranks = 2,
                    .dtype = dtype,
                    .reduce_dtype = kBF16,
                    .more = {.release_arena = release_arena, .units = units},
                    .tied = tied,
                    .positions = 60};
          check_against_ledger(c);
          c.rows = 30;  // the head in pieces
          check_against_ledger(c);
        }
      }
    }
  }
}

TEST_CASE("memory formula: a second backward of a micro-step sets gradients in place aside") {
  using enum comm::Strategy;
  for (const auto& [ranks, strategy] : {std::pair{1, kFullShard}, std::pair{2, kNoShard},
                                        std::pair{2, kFullShard}, std::pair{2, kShardOptimizer}}) {
    CAPTURE(ranks);
    CAPTURE(static_cast<int>(strategy));
    test::RunSpec spec;
    spec.ranks = ranks;
    spec.fsdp.strategy = strategy;
    comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
      test::RankRun run(world, spec);
      const auto gradient = static_cast<size_t>(MemoryCategory::kGradient);
      const size_t predicted = predicted_memory(
          memory_plan(run.sharded(), test::small_gpt2(), std::nullopt, /*positions=*/0))[gradient];
      const auto peak = [&] { return run.backend().ledger().usage().peak[gradient]; };
      run.forward_backward(0);
      CHECK(peak() == predicted);
      run.backward_again(0);
      CHECK(peak() == (run.sharded().mesh().shards() == 1 ? 2 : 1) * predicted);
    });
  }
}

TEST_CASE("memory formula: what other optimizers keep") {
  using Kind = optim::OptimizerKind;
  check_against_ledger({.ranks = 2, .optimizer = {.kind = Kind::kAdam}});
  check_against_ledger({.ranks = 3, .optimizer = {.kind = Kind::kAdamax}});
  check_against_ledger({.ranks = 2, .optimizer = {.kind = Kind::kAdadelta}});
  check_against_ledger({.ranks = 2, .optimizer = {.kind = Kind::kSgd}});
  check_against_ledger({.ranks = 3, .optimizer = {.kind = Kind::kSgd, .momentum = 0.9}});
}

TEST_CASE("memory formula: counts by hand") {
  // Root of 3 x 128 elements, two blocks of 3 x 64; f32; 2 parameters each.
  const MemoryPlan plan = {.units = {{{{128, 2}}, 0}, {{{64, 2}}, 1}, {{{64, 2}}, 1}}, .shards = 3};
  const auto bytes = predicted_memory(plan);
  using enum MemoryCategory;
  CHECK(bytes[static_cast<size_t>(kParameterShard)] == 512 + 512 + 512);
  CHECK(bytes[static_cast<size_t>(kUnshardedParameter)] == 1536 + 2 * 1024);
  CHECK(bytes[static_cast<size_t>(kGradient)] == 1536 + 1536 + 2 * 1024);
  CHECK(bytes[static_cast<size_t>(kOptimizerState)] == 2 * 1536 + 3 * 512 + 512 + 5 * 512);
  CHECK(bytes[static_cast<size_t>(kActivation)] == 0);
}

}  // namespace
}  // namespace fsdp::tools
