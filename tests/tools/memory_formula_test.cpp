// The memory formula against the ledger of real steps, to the byte.
#include "tools/runtime/memory_formula.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tools/runtime/session.h"

namespace fsdp::tools {
namespace {

struct Case {
  int ranks = 1;
  comm::Strategy strategy = comm::Strategy::kFullShard;
  DType dtype = DType::kF32;
  DType reduce_dtype = DType::kF32;
  int64_t layers = 3;
  bool wrap_blocks = true;
};

SessionOptions session_options(const Case& c) {
  SessionOptions options;
  models::ModelConfig& model = options.model;
  model = models::family_defaults("gpt2");
  model.vocabulary = 19;
  model.hidden = 20;  // odd in every respect: padding and alignment gaps
  model.layers = c.layers;
  model.heads = model.kv_heads = 5;
  model.head_dim = 4;
  model.ffn = 52;
  model.max_positions = options.max_length = 7;
  options.wrap_blocks = c.wrap_blocks;
  options.fsdp.strategy = c.strategy;
  options.fsdp.param_dtype = c.dtype;
  options.fsdp.reduce_dtype = c.reduce_dtype;
  return options;
}

void check_against_ledger(const Case& c) {
  CAPTURE(c.ranks);
  CAPTURE(static_cast<int>(c.strategy));
  CAPTURE(name_of(c.dtype));
  CAPTURE(name_of(c.reduce_dtype));
  comm::run_local_ranks(c.ranks, [&](comm::Communicator& world) {
    Session session(world, session_options(c));
    session.initialise(models::from_scratch(1));
    const std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2};
    const Batch batch = {.rows = 1,
                         .length = 7,
                         .tokens = tokens,
                         .labels = tokens,
                         .global_label_tokens = 6 * c.ranks};
    for (uint32_t step = 0; step < 2; ++step) session.train_step(batch, 1e-3, step).read();
    const auto predicted =
        predicted_memory(memory_plan(session.sharded(), session.model().config(), true));
    const MemoryUsage counted = session.backend().ledger().usage();
    CAPTURE(world.rank());
    for (size_t i = 0; i < kMemoryCategories; ++i) {
      if (!has_formula(static_cast<MemoryCategory>(i))) continue;
      CAPTURE(name_of(static_cast<MemoryCategory>(i)));
      CHECK(predicted[i] == counted.peak[i]);
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
  check_against_ledger({.ranks = 2, .wrap_blocks = false});
}

TEST_CASE("memory formula: counts by hand") {
  // Root of 3 x 128 elements, two blocks of 3 x 64; f32; 2 parameters each.
  const MemoryPlan plan = {.units = {{128, 3, 2}, {64, 3, 2}, {64, 3, 2}}};
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
