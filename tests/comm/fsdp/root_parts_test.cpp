// What is outside of the blocks as two units, before and after them: the results of one root, to
// the bit; which of them is gathered and reduced first and last; memory that is not above that of
// one root. Which modules they are: tests/models/causal_lm_test.cpp; when a run has them:
// tests/tools/train/config_to_session_test.cpp; every option beside them, to the byte:
// tests/support/memory_cases.h.
#include <algorithm>
#include <array>

#include <doctest/doctest.h>

#include "comm/fsdp/fully_sharded.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

models::ModelConfig untied_gpt2() {
  models::ModelConfig config = small_gpt2();
  config.tied_head = false;
  return config;
}

models::ModelConfig with_embedding_norm() {
  models::ModelConfig config = small_llama();
  config.embedding_norm = true;
  return config;
}

// Tables that are much larger than a block.
models::ModelConfig wide() {
  models::ModelConfig config = small_llama();
  config.vocabulary = 2000;
  return config;
}

RunSpec spec_of(const models::ModelConfig& config, int ranks, const FsdpOptions& options,
                RecomputeMode recompute = RecomputeMode::kNone) {
  RunSpec spec;
  spec.subject = causal_lm(config, recompute, /*every=*/2);
  spec.ranks = ranks;
  spec.fsdp = options;
  spec.rows = 24;
  spec.training = true;
  spec.clip_norm = options.fixed_order ? 0.5 : 0;  // otherwise the norm has another order of sums
  return spec;
}

RunSpec in_parts(RunSpec spec, const models::ModelConfig& config) {
  spec.wrap = wrap_blocks_and_ends(config);
  return spec;
}

void check_same(const RunSpec& spec, const models::ModelConfig& config) {
  const RunResult whole = train(spec), parts = train(in_parts(spec, config));
  CHECK(parts.losses == whole.losses);
  CHECK(parts.parameters == whole.parameters);
  CHECK(norm_difference(parts, whole) <= 1e-6);
  if (spec.fsdp.fixed_order) CHECK(parts == whole);
}

struct Setting {
  int ranks;
  FsdpOptions options;
};

std::vector<Setting> settings() {
  using enum Strategy;
  using enum Accumulation;
  const auto micro = [](FsdpOptions options, Accumulation accumulation) {
    options.micro_steps = 3;
    options.accumulation = accumulation;
    return options;
  };
  const FsdpOptions hybrid = {.strategy = kHybridShard, .shard_size = 2};
  return {{1, {}},
          {2, {}},
          {3, {.param_dtype = DType::kBF16}},
          {4, {.reshard_group_size = 2}},
          {2, {.strategy = kShardGradOp}},
          {3, {.strategy = kShardGradOp, .release_arena = true}},
          {2, {.strategy = kShardOptimizer}},
          {2, {.strategy = kNoShard}},
          {4, hybrid},
          {4, {.strategy = kHybridShardZero2, .shard_size = 2}},
          {3, {.forward_prefetch = 0, .backward_prefetch = BackwardPrefetch::kNone}},
          {2, {.backward_prefetch = BackwardPrefetch::kPost, .units_in_flight = 1}},
          {2, {.forward_prefetch = 3, .units_in_flight = 4, .separate_reduce = false}},
          {2, {.release_arena = true}},
          {2, micro({}, kReduceEach)},
          {2, micro({.reduce_dtype = DType::kBF16}, kReduceLast)},
          {2, micro({.strategy = kShardGradOp}, kReduceEach)},
          {4, micro(hybrid, kReduceScatterEach)},
          {2, {.param_dtype = DType::kBF16, .rounding_seed = 3}},
          {2, {.offload = Offload::kOptimizer}},
          {3, {.offload = Offload::kAll}},
          {2, {.offload = Offload::kNvme}},
          {1, {.fixed_order = true}},
          {3, {.micro_steps = 2, .fixed_order = true}},
          {4, {.strategy = kHybridShard, .shard_size = 2, .fixed_order = true}}};
}

}  // namespace

TEST_CASE("the root in parts: the bits of one root, with every option of sharding") {
  const models::ModelConfig config = untied_gpt2();
  for (const Setting& s : settings()) {
    CAPTURE(s.ranks);
    CAPTURE(fmt::format("{}", fmt::join(texts_of(s.options), "; ")));
    check_same(spec_of(config, s.ranks, s.options), config);
  }
}

TEST_CASE("the root in parts: models, recompute, frozen parts, several forwards, evaluations") {
  for (const models::ModelConfig& config : {small_llama(), with_embedding_norm()}) {
    CAPTURE(config.embedding_norm);
    check_same(spec_of(config, 2, {}, RecomputeMode::kFull), config);
    for (const std::string frozen :
         {"embedding.tokens.weight", "head.weight", "final_norm.weight", "blocks."}) {
      CAPTURE(frozen);
      RunSpec spec = spec_of(config, 2, {});
      spec.frozen = [&](const Parameter& p) { return p.name().starts_with(frozen); };
      check_same(spec, config);
    }
    RunSpec only_head = spec_of(config, 2, {});
    only_head.frozen = [](const Parameter& p) { return p.name() != "head.weight"; };
    check_same(only_head, config);
    RunSpec evaluated = spec_of(config, 2, {.release_arena = true});
    evaluated.before_step = evaluate_between_steps;
    check_same(evaluated, config);
  }
}

// The second forward takes the buffer of the first one's head, and the embedding's gradient that of
// the head's, which is reduced in two pieces then: another order of sums, as it is of blocks.
TEST_CASE("the root in parts: several forwards before their backwards") {
  const models::ModelConfig config = small_llama();
  for (const bool release : {false, true}) {
    RunSpec spec = spec_of(config, 2, {.release_arena = release});
    spec.forwards = 2;
    const RunResult whole = train(spec), parts = train(in_parts(spec, config));
    CHECK(loss_difference(parts, whole) <= 1e-6);
    CHECK(largest_difference(parts.parameters, whole.parameters) <= 1e-4);
    spec.fsdp.strategy = Strategy::kShardOptimizer;  // whose gradients stay whole
    check_same(spec, config);
  }
}

namespace {

// Units of the collectives of the third step, in the order of issue.
std::vector<std::string> traced(const RunSpec& spec, std::string_view name) {
  std::vector<std::string> units;
  run_local_ranks(spec.ranks, [&](Communicator& world) {
    RankRun run(world, spec);
    for (int step = 0; step < 2; ++step) run.step(step);
    const std::vector<TraceEvent> events = run.traced_step(2);
    if (world.rank() != 0) return;
    for (const TraceEvent& e : events) {
      if (e.name == name && e.lane != "compute") units.push_back(e.scope);
    }
  });
  return units;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("the root in parts: the embedding is gathered first, the head is reduced first") {
  const models::ModelConfig config = small_llama();
  const Names blocks = {"blocks.0", "blocks.1", "blocks.2"};
  const Names gathers = {"embedding", "blocks.0", "blocks.1", "blocks.2", "head",
                         "blocks.2",  "blocks.1", "blocks.0", "embedding"};
  const Names reduces = {"head", "blocks.2", "blocks.1", "blocks.0", "embedding"};
  const RunSpec spec = in_parts(spec_of(config, 2, {}), config);
  CHECK(traced(spec, "all_gather") == gathers);
  CHECK(traced(spec, "reduce_scatter") == reduces);

  // Whatever is kept is gathered once; each micro-step reduces.
  RunSpec kept = in_parts(spec_of(config, 2, {.strategy = Strategy::kShardGradOp}), config);
  kept.fsdp.micro_steps = 2;
  CHECK(traced(kept, "all_gather") == Names(gathers.begin(), gathers.begin() + 5));
  Names twice = reduces;
  twice.insert(twice.end(), reduces.begin(), reduces.end());
  CHECK(traced(kept, "reduce_scatter") == twice);

  RunSpec none = in_parts(spec_of(config, 2, {.strategy = Strategy::kNoShard}), config);
  CHECK(traced(none, "all_reduce") == reduces);
}

// A host that updates them in this order gives the next forward what it needs first.
TEST_CASE("the root in parts: the optimizer has the head last, norms have it in the root's place") {
  const models::ModelConfig config = small_llama();
  run_local_ranks(1, [&](Communicator& world) {
    RankRun run(world, in_parts(spec_of(config, 1, {}), config));
    Names names, of_root;
    for (const OptimizerShard& shard : run.sharded().optimizer_shards()) {
      names.push_back(shard.name);
      if (shard.of_root) of_root.push_back(shard.name);
    }
    CHECK(names == Names{"embedding", "blocks.0", "blocks.1", "blocks.2", "head"});
    CHECK(of_root == Names{"embedding", "head"});
    for (const auto& unit : run.sharded().units()) {
      if (unit->gradients) CHECK(names.at(unit->shard) == unit->name);
    }
  });
}

TEST_CASE("a look at the blocks, without the head, leaves the order of use as it was") {
  const models::ModelConfig config = small_llama();
  RunSpec spec = in_parts(spec_of(config, 2, {}), config);
  const Names before = traced(spec, "all_gather");
  spec.before_step = [](RankRun& run, int) {
    auto& model = static_cast<models::CausalLM&>(run.module());
    const Tensor tokens = Tensor::from_host(run.backend(), Shape{1, 3}, std::vector<int32_t>(3));
    run.steps().evaluate([&] { model.probe(tokens, {}, [](const auto&, const Tensor&) {}); });
  };
  const Names with_look = traced(spec, "all_gather");
  CHECK(Names(with_look.end() - static_cast<std::ptrdiff_t>(before.size()), with_look.end()) ==
        before);
}

namespace {

std::array<size_t, 3> peaks(const RunSpec& spec) {
  std::array<size_t, 3> out{};
  run_local_ranks(spec.ranks, [&](Communicator& world) {
    RankRun run(world, spec);
    for (int step = 0; step < 2; ++step) run.step(step);
    run.wait();
    if (world.rank() != 0) return;
    const MemoryUsage usage = run.backend().ledger().usage();
    out = {usage.peak[static_cast<size_t>(MemoryCategory::kUnshardedParameter)],
           usage.peak[static_cast<size_t>(MemoryCategory::kGradient)], usage.total_peak};
  });
  return out;
}

}  // namespace

// Embedding and head share one buffer of the larger one, where one root had a buffer for both.
TEST_CASE("the root in parts: half the buffers of the root, and never more memory") {
  const models::ModelConfig config = wide();
  const size_t table = sizeof(float) * static_cast<size_t>(config.vocabulary * config.hidden);
  const size_t norm = sizeof(float) * static_cast<size_t>(config.hidden);
  const auto rounded = [](size_t bytes) { return (bytes + 511) / 512 * 512; };
  const size_t difference = rounded(2 * table + norm) - rounded(table + norm);
  const std::vector<FsdpOptions> chosen = {
      {},
      {.release_arena = true},
      {.strategy = Strategy::kShardGradOp},
      {.strategy = Strategy::kShardGradOp, .release_arena = true},
      {.strategy = Strategy::kNoShard},
      {.offload = Offload::kAll}};
  for (const FsdpOptions& options : chosen) {
    CAPTURE(fmt::format("{}", fmt::join(texts_of(options), "; ")));
    const RunSpec whole = spec_of(config, 2, options);
    const auto [gathered, gradients, total] = peaks(in_parts(whole, config));
    const auto [gathered_whole, gradients_whole, total_whole] = peaks(whole);
    // Shards of more units are rounded up more often.
    CHECK(gathered <= gathered_whole + 1024);
    CHECK(gradients <= gradients_whole + 2048);
    CHECK(total <= total_whole + 8192);
    if (options != FsdpOptions{}) continue;
    CHECK(gathered_whole - gathered == difference);
    CHECK(gradients_whole - gradients <= difference);
    CHECK(gradients_whole - gradients >= difference - 1024);
  }
}

TEST_CASE("the root in parts: options of the parts by their names and classes") {
  const models::ModelConfig config = small_llama();
  const auto units_of = [&](const std::string& match) {
    FsdpOptions options;
    options.units = {{.match = match, .reshard_after_forward = false, .place = "a.yaml:3"}};
    std::string kept;
    run_local_ranks(2, [&](Communicator& world) {
      RankRun run(world, in_parts(spec_of(config, 2, options), config));
      if (world.rank() != 0) return;
      for (const auto& unit : run.sharded().units()) {
        if (unit->policy.resident()) kept += unit->name + " ";
      }
    });
    return kept;
  };
  CHECK(units_of("head") == "head ");
  CHECK(units_of("Linear") == "head ");
  CHECK(units_of("embedding") == "embedding ");
  CHECK(units_of("[eh]*") == "embedding head ");
  CHECK(contains(
      error_of([&] { units_of("root"); }),
      "a.yaml:3: fsdp.units: no unit matches \"root\"; the units are embedding (Embedding), "
      "blocks.0 (LlamaDecoderLayer), blocks.1 (LlamaDecoderLayer), blocks.2 (LlamaDecoderLayer), "
      "head "
      "(LlamaRMSNorm, Linear); with fsdp.root: whole the root is one of them"));
  // In a dtype of its own: activations are cast on the way in, the loss stays as it is.
  FsdpOptions options = {.param_dtype = DType::kBF16};
  options.units = {{.match = "head", .param_dtype = DType::kF32}};
  RunSpec spec = in_parts(spec_of(config, 2, options), config);
  const RunResult wide_head = train(spec);
  spec.fsdp.units.clear();
  const RunResult narrow = train(spec);
  CHECK(loss_difference(wide_head, narrow) < 0.02);
  CHECK(wide_head.losses != narrow.losses);
}
