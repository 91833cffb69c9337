// Wrap policies that nobody would choose train the same model to the bit: every linear layer a
// unit, units inside units, outer units without parameters of their own, everything a unit, one
// unit.
#include <atomic>

#include <doctest/doctest.h>

#include "comm/fsdp/fully_sharded.h"
#include "tests/support/sharded_run.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

struct Odd {
  const char* what;
  WrapPolicy wrap;
};

WrapPolicy everything() {
  return wrap_where([](const Module&) { return true; });
}

models::ModelConfig untied_gpt2() {
  models::ModelConfig config = small_gpt2();
  config.tied_head = false;
  return config;
}

// No weight fills whole lines of the flat buffer: q, k and v are three products in all units. Where
// they are one, units that part them are other sums.
models::ModelConfig unjoined_llama() {
  models::ModelConfig config = small_llama();
  config.hidden = 20;
  return config;
}

std::vector<Odd> odd_policies(const std::string& family) {
  const bool gpt2 = family == "gpt2";
  const std::string prefix = gpt2 ? "GPT2" : "Llama";
  const std::string block = gpt2 ? "GPT2Block" : "LlamaDecoderLayer";
  return {{"every linear layer", wrap_classes({gpt2 ? "Conv1D" : "Linear"})},
          {"every norm", wrap_classes({gpt2 ? "LayerNorm" : "LlamaRMSNorm"})},
          {"embeddings", wrap_classes({"Embedding"})},
          {"attention inside blocks", wrap_classes({block, prefix + "Attention"})},
          {"everything but the head", wrap_classes({prefix + "Model"})},
          {"size: root without parameters", wrap_by_size(600)},
          {"size: units inside units", wrap_by_size(1500)},
          {"every module", everything()}};
}

// No clipping: the norm is summed in another order when the shards are cut elsewhere.
RunSpec spec_of(const models::ModelConfig& config, Strategy strategy, RecomputeMode recompute) {
  RunSpec spec;
  spec.subject = causal_lm(config, recompute, /*every=*/2);
  spec.ranks = 3;
  spec.clip_norm = 0;
  spec.training = true;
  spec.fsdp.strategy = strategy;
  return spec;
}

void check_same(const RunResult& a, const RunResult& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.parameters == b.parameters);
}

}  // namespace

TEST_CASE("odd wrap policies under full_shard equal no_shard with a unit per block, to the bit") {
  for (const models::ModelConfig& config : {untied_gpt2(), unjoined_llama()}) {
    CAPTURE(config.family);
    const RunResult expected = train(spec_of(config, Strategy::kNoShard, RecomputeMode::kNone));
    for (const Odd& odd : odd_policies(config.family)) {
      CAPTURE(odd.what);
      RunSpec spec = spec_of(config, Strategy::kFullShard, RecomputeMode::kNone);
      spec.wrap = odd.wrap;
      check_same(train(spec), expected);
    }
  }
}

TEST_CASE("units that part q, k and v, and units that do not: the same bits in every strategy") {
  RunSpec spec = spec_of(small_llama(), Strategy::kNoShard, RecomputeMode::kNone);
  const RunResult joined = train(spec);
  spec.wrap = wrap_classes({"Linear"});
  const RunResult parted = train(spec);
  for (const Strategy strategy :
       {Strategy::kFullShard, Strategy::kShardGradOp, Strategy::kShardOptimizer}) {
    spec.fsdp.strategy = strategy;
    spec.wrap = wrap_classes({"Linear"});
    check_same(train(spec), parted);
    spec.wrap = wrap_classes({"LlamaRMSNorm"});
    check_same(train(spec), joined);
  }
}

TEST_CASE("odd wrap policies with recompute, every prefetch mode, one unit in flight, bf16") {
  const models::ModelConfig config = unjoined_llama();
  const RunResult expected = train(spec_of(config, Strategy::kNoShard, RecomputeMode::kNone));
  for (const Odd& odd : odd_policies(config.family)) {
    CAPTURE(odd.what);
    for (const auto& [mode, prefetch] : {std::pair{RecomputeMode::kFull, BackwardPrefetch::kPre},
                                         {RecomputeMode::kFull, BackwardPrefetch::kPost},
                                         {RecomputeMode::kSelective, BackwardPrefetch::kPre},
                                         {RecomputeMode::kSelective, BackwardPrefetch::kNone}}) {
      RunSpec spec = spec_of(config, Strategy::kFullShard, mode);
      spec.wrap = odd.wrap;
      spec.fsdp.backward_prefetch = prefetch;
      spec.fsdp.units_in_flight = prefetch == BackwardPrefetch::kPost ? 1 : 3;
      spec.fsdp.forward_prefetch = prefetch == BackwardPrefetch::kPre ? 2 : 0;
      check_same(train(spec), expected);
    }
  }
  RunSpec spec = spec_of(config, Strategy::kNoShard, RecomputeMode::kNone);
  spec.fsdp.param_dtype = spec.fsdp.reduce_dtype = DType::kBF16;
  const RunResult rounded = train(spec);
  spec.fsdp.strategy = Strategy::kFullShard;
  spec.wrap = everything();
  check_same(train(spec), rounded);
}

TEST_CASE(
    "units that get no gradient at their input give their buffers back when others need them") {
  // Everything before the first linear layers is frozen, so their backward ends unnoticed.
  const models::ModelConfig config = unjoined_llama();
  RunSpec spec = spec_of(config, Strategy::kNoShard, RecomputeMode::kNone);
  spec.frozen = [](const Parameter& p) {
    return p.name() == "embedding.tokens.weight" || p.name() == "blocks.0.attention_norm.weight";
  };
  const RunResult expected = train(spec);
  spec.fsdp.strategy = Strategy::kFullShard;
  spec.wrap = wrap_classes({"Linear"});
  check_same(train(spec), expected);
}

TEST_CASE("an arena has buffers for every depth of nesting, and gathers follow the order of use") {
  RunSpec spec = spec_of(untied_gpt2(), Strategy::kFullShard, RecomputeMode::kNone);
  spec.wrap = wrap_classes({"GPT2Block", "Conv1D"});
  std::vector<std::string> gathered;
  run_local_ranks(spec.ranks, [&](Communicator& world) {
    RankRun run(world, spec);
    for (int step = 0; step < 2; ++step) run.step(step);
    const std::vector<TraceEvent> events = run.traced_step(2);
    if (world.rank() != 0) return;
    for (const TraceEvent& event : events) {
      if (event.name == "all_gather") gathered.push_back(event.scope);
    }
  });
  const std::vector<std::string> forward = {"root",
                                            "blocks.0",
                                            "blocks.0.attention.qkv",
                                            "blocks.0.attention.out",
                                            "blocks.0.mlp.up",
                                            "blocks.0.mlp.down",
                                            "blocks.1"};
  REQUIRE(gathered.size() == 31);  // every unit twice, the root once
  CHECK(std::vector<std::string>(gathered.begin(), gathered.begin() + 7) == forward);
  // Backward: the last block, its parts in reverse, then the block before.
  const auto from = gathered.begin() + 16;
  CHECK(std::vector<std::string>(from, from + 6) ==
        std::vector<std::string>{"blocks.2", "blocks.2.mlp.down", "blocks.2.mlp.up",
                                 "blocks.2.attention.out", "blocks.2.attention.qkv", "blocks.1"});
}

// Block 0 and its MLP are gathered ahead, from the root, and then left out: block 1 finds the only
// buffer of blocks taken, its MLP the only one of MLPs.
TEST_CASE("a gather on demand takes back an unused prefetch of its own depth, and no other") {
  using enum ParameterState;
  RunSpec s;
  s.subject = block_list(small_gpt2(), [](const Pass& pass) {
    return pass.step == 1 ? std::vector<int>{1, 2} : std::vector<int>{0, 1, 2};
  });
  s.wrap = wrap_classes({"GPT2Block", "GPT2MLP"});
  s.fsdp = {.forward_prefetch = 0, .units_in_flight = 3};
  const RunResult expected = train(s);
  s.fsdp = {.forward_prefetch = 2, .units_in_flight = 1};
  std::atomic<int> looks = 0;
  s.before_step = [&](RankRun& run, int step) {
    // States of units where a module's forward or backward begins; in flight: never more than one.
    const auto look = [&run, &looks](const std::map<std::string, ParameterState>& states) {
      ++looks;
      std::map<int, int> in_flight;  // by depth
      for (const auto& unit : run.sharded().units()) {
        in_flight[unit->depth] += unit->parameters.state() != kSharded;
        CAPTURE(unit->name);
        if (states.contains(unit->name)) CHECK(unit->parameters.state() == states.at(unit->name));
      }
      for (const auto& [depth, units] : in_flight) CHECK(units <= 1);
    };
    for (Module* module : run.module().modules()) {
      const auto hook = [&](const std::map<std::string, ParameterState>& forward) {
        module->set_hooks(
            {.pre_forward = [=] { look(forward); }, .pre_backward = [=] { look({}); }});
      };
      if (step == 1 && module->name() == "blocks.1.attention") {
        hook({{"blocks.0", kSharded}, {"blocks.0.mlp", kGathering}, {"blocks.1", kUnsharded}});
      } else if (step == 1 && module->name().starts_with("blocks.1.mlp.")) {
        hook({{"blocks.0.mlp", kSharded}, {"blocks.1", kUnsharded}, {"blocks.1.mlp", kUnsharded}});
      } else if (module->name().ends_with(".attention") ||
                 module->name().find(".mlp.") != std::string::npos) {
        hook({});
      }
    }
  };
  CHECK((train(s) == expected));
  // Attention and two linear layers of a block, both ways, on both ranks.
  CHECK(looks == 2 * 2 * 3 * (3 + 2 + 3));
}
