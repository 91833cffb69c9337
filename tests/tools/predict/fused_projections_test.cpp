// How many products a block of a training step makes: one for q, k and v and one for gate and up,
// in every strategy; one for each of them only where something tells them apart. Counted in the run
// without bytes. What such a product computes: tests/core/ops/linear_test.cpp.
#include <doctest/doctest.h>

#include "models/lora.h"
#include "models/weights.h"
#include "tools/predict/meta_run.h"

namespace fsdp::tools {
namespace {

using comm::Strategy;

// Every weight and bias fills whole lines of 64 elements.
models::ModelConfig model_of(const std::string& family, int64_t layers) {
  models::ModelConfig c = models::family_defaults(family);
  c.vocabulary = 50;
  c.hidden = 24;
  c.layers = layers;
  c.heads = 8;
  c.kv_heads = 4;
  c.head_dim = 16;
  c.ffn = 40;
  c.max_positions = 16;
  models::validate(c);
  return c;
}

struct Calls {
  int64_t products = 0, adds = 0, sums = 0;
  bool operator==(const Calls&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Calls& c) {
  return out << c.products << " products, " << c.adds << " adds, " << c.sums << " sums";
}

Calls calls_of_step(const PlacedOptions& options, int ranks, int64_t rows_per_pass) {
  MetaRun run(options, ranks);
  run.load(models::from_scratch(0));
  run.set_rows_per_pass(rows_per_pass);
  run.steps(ranks * options.fsdp.micro_steps, 8);
  Calls out;
  for (const StepCall& call : run.last_step()) {
    if (!call.computes) continue;
    out.products += call.product.has_value();
    out.adds += call.name == "add";
    out.sums += call.name == "sum_rows";
  }
  return out;
}

// Of one block in a micro-step: three blocks make twice as many calls more than one block.
Calls calls_of_block(PlacedOptions options, int ranks = 2) {
  options.max_length = 8;
  const int64_t rows = options.fsdp.fixed_order ? 1 : 0, micro_steps = options.fsdp.micro_steps;
  const Calls three = calls_of_step(options, ranks, rows);
  options.model.layers = 1;
  const Calls one = calls_of_step(options, ranks, rows);
  return {(three.products - one.products) / 2 / micro_steps,
          (three.adds - one.adds) / 2 / micro_steps, (three.sums - one.sums) / 2 / micro_steps};
}

PlacedOptions options_of(const std::string& family) {
  PlacedOptions options;
  options.model = model_of(family, 3);
  return options;
}

// qkv, out, gate and up, down: each forward, for its input and for its weight. One residual add;
// the other is the norm's.
constexpr Calls kFused = {.products = 12, .adds = 1, .sums = 0};

}  // namespace

TEST_CASE("one product for q, k and v, and one for gate and up, whatever the strategy") {
  for (const char* family : {"llama", "mistral", "qwen2"}) {
    for (const Strategy strategy :
         {Strategy::kFullShard, Strategy::kShardGradOp, Strategy::kShardOptimizer,
          Strategy::kNoShard, Strategy::kHybridShard, Strategy::kHybridShardZero2}) {
      for (const bool fixed_order : {false, true}) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          CAPTURE(family);
          CAPTURE(static_cast<int>(strategy));
          CAPTURE(fixed_order);
          const bool hybrid =
              strategy == Strategy::kHybridShard || strategy == Strategy::kHybridShardZero2;
          PlacedOptions options = options_of(family);
          options.fsdp = {.strategy = strategy,
                          .shard_size = hybrid ? 2 : 0,
                          .param_dtype = dtype,
                          .micro_steps = 2,
                          .fixed_order = fixed_order};
          Calls expected = kFused;
          if (options.model.qkv_bias) expected.sums = 1;
          CHECK(calls_of_block(options, hybrid ? 4 : 2) == expected);
        }
      }
    }
  }
}

TEST_CASE("one product on one rank, in one unit, and where the forward runs again") {
  PlacedOptions options = options_of("qwen2");
  CHECK(calls_of_block(options, 1) == Calls{12, 1, 1});
  options.wrap = comm::wrap_nothing();
  CHECK(calls_of_block(options) == Calls{12, 1, 1});
  options.recompute = RecomputeMode::kFull;
  CHECK(calls_of_block(options) == Calls{16, 2, 1});
  options.recompute = RecomputeMode::kSelective;
  CHECK(calls_of_block(options) == Calls{12, 1, 1});
}

TEST_CASE("a product for each where units, trainability or sizes tell them apart") {
  PlacedOptions options = options_of("llama");
  options.wrap = comm::wrap_classes({"Linear"});
  CHECK(calls_of_block(options) == Calls{21, 4, 0});
  options.wrap = comm::wrap_classes({"LlamaAttention"});  // gate and up stay in one unit
  CHECK(calls_of_block(options) == kFused);

  options = options_of("llama");
  options.frozen = {"*.k_proj.*"};
  CHECK(calls_of_block(options) == Calls{17, 3, 0});
  options.frozen = {"*.q_proj.*", "*.k_proj.*", "*.v_proj.*"};
  CHECK(calls_of_block(options) == Calls{11, 1, 0});
  options.frozen = {"*.gate_proj.*"};
  CHECK(calls_of_block(options) == Calls{14, 2, 0});

  for (const bool fixed_order : {false, true}) {
    options = options_of("llama");
    options.fsdp.fixed_order = fixed_order;
    options.model.ffn = 29;  // 29 x 24 is no multiple of 64
    CHECK(calls_of_block(options) == Calls{15, 2, 0});
    options = options_of("qwen2");
    options.fsdp.fixed_order = fixed_order;
    options.model.heads = 6;  // a bias of 96
    options.model.kv_heads = 2;
    CHECK(calls_of_block(options) == Calls{18, 3, 3});
  }
}

TEST_CASE("a product for each where a part has a low-rank term; one where none has") {
  PlacedOptions options = options_of("llama");
  options.lora = models::LoraConfig{.r = 2};  // of q and v
  // Forward 3 + 2 x 2, out, gate and up, down. Backward their inputs, and of A and B both.
  CHECK(calls_of_block(options).products == 10 + 6 + 8);
  options.lora->targets = {"o_proj"};
  CHECK(calls_of_block(options).products == 6 + 4 + 4);
}

}  // namespace fsdp::tools
