// A transformer block: its parameters in order, its value against a composition of plain ops, every
// gradient against finite differences with and without dropout, and recompute bit by bit.
#include "models/block.h"

#include <doctest/doctest.h>

#include "core/layer_args.h"
#include "core/ops/elementwise.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/gradient_check.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_models.h"

namespace fsdp::models {
namespace {

using Tensors = std::vector<Tensor>;

struct Rig {
  explicit Rig(ModelConfig model_config)
      : config(std::move(model_config)),
        block("blocks.1", BlockSpec{config, 1, make_rope_tables(config, backend, DType::kF64, 8)}) {
  }

  ForwardContext training() {
    return {.training = true, .dropout = {.seed = 3, .step = 2}, .samples = &samples};
  }

  cpu::CpuBackend backend;
  ModelConfig config;
  Block block;
  Tensor samples = Tensor::from_host(backend, Shape{2}, std::vector<int64_t>{5, 2});
};

std::vector<std::string> names_of(const Module& module) {
  std::vector<std::string> names;
  for (const Parameter* p : module.parameters()) names.push_back(p->name());
  return names;
}

TEST_CASE("block: parameters carry the block's name, in the order of their module") {
  const Rig gpt2(test::tiny_gpt2());
  CHECK(gpt2.block.class_name() == "GPT2Block");
  CHECK(names_of(gpt2.block) ==
        std::vector<std::string>{"blocks.1.attention_norm.weight", "blocks.1.attention_norm.bias",
                                 "blocks.1.attention.qkv.weight", "blocks.1.attention.qkv.bias",
                                 "blocks.1.attention.out.weight", "blocks.1.attention.out.bias",
                                 "blocks.1.mlp_norm.weight", "blocks.1.mlp_norm.bias",
                                 "blocks.1.mlp.up.weight", "blocks.1.mlp.up.bias",
                                 "blocks.1.mlp.down.weight", "blocks.1.mlp.down.bias"});
  const Rig llama(test::tiny_llama());
  CHECK(names_of(llama.block) ==
        std::vector<std::string>{"blocks.1.attention.q.weight", "blocks.1.attention.k.weight",
                                 "blocks.1.attention.v.weight", "blocks.1.attention.out.weight",
                                 "blocks.1.mlp.gate.weight", "blocks.1.mlp.up.weight",
                                 "blocks.1.mlp.down.weight", "blocks.1.attention_norm.weight",
                                 "blocks.1.mlp_norm.weight"});
}

std::vector<ModelConfig> configs() {
  ModelConfig gpt2 = test::tiny_gpt2();
  ModelConfig erf = gpt2;
  erf.activation = Activation::kGeluErf;
  erf.weight_layout = ops::WeightLayout::kOutIn;
  erf.packed_qkv = erf.qkv_bias = false;  // a key bias alone has gradient zero: nothing to compare
  ModelConfig llama = test::tiny_llama();
  ModelConfig biased = llama;
  biased.qkv_bias = biased.attention_out_bias = biased.mlp_bias = biased.packed_qkv = true;
  return {gpt2, erf, llama, biased};
}

TEST_CASE("block: gradients of input and all parameters against finite differences") {
  for (ModelConfig config : configs()) {
    for (const double dropout : {0.0, 0.3}) {
      CAPTURE(config.family);
      CAPTURE(dropout);
      config.attention_dropout = config.residual_dropout = dropout;
      Rig rig(config);
      test::GradientCheck check(rig.backend);
      check.tolerance = 1e-7;  // two norms and a softmax in a row: larger fifth derivatives
      check.input("x", Shape{2, 5, config.hidden});
      for (Parameter* p : rig.block.parameters()) check.attach(*p, -0.7, 0.7);
      check.run([&](const Tensors& in) { return Tensors{rig.block(in[0], rig.training())}; });
    }
  }
}

// x + attention(norm(x)), then + mlp(norm(.)), written with ops only.
Tensor composed(Rig& rig, const Tensor& x) {
  const ModelConfig& c = rig.config;
  std::vector<Parameter*> p = rig.block.parameters();
  const ops::NormOutput before = ops::norm(x, Tensor(), {*p[0], p[1], c.norm_epsilon});
  const Tensor qkv = ops::linear(before.y, {*p[2], p[3], c.weight_layout});
  const auto view = [&](int64_t offset) {
    return HeadView{.tensor = &qkv,
                    .heads = c.heads,
                    .head_dim = c.head_dim,
                    .offset = offset,
                    .head_stride = c.head_dim};
  };
  const Tensor mixed = ops::attention({.q = view(0),
                                       .k = view(c.hidden),
                                       .v = view(2 * c.hidden),
                                       .scale = c.attention_scale(0),
                                       .dropout = {}});
  const Tensor x1 = ops::add(x, ops::linear(mixed, {*p[4], p[5], c.weight_layout}));
  const Tensor y1 = ops::norm(x1, Tensor(), {*p[6], p[7], c.norm_epsilon}).y;
  const Tensor up = ops::linear(y1, {*p[8], p[9], c.weight_layout}, c.activation);
  return ops::add(x1, ops::linear(up, {*p[10], p[11], c.weight_layout}));
}

TEST_CASE("block: gpt2 is norm, attention, add, norm, mlp, add") {
  Rig rig(test::tiny_gpt2());
  for (Parameter* p : rig.block.parameters()) {
    p->set_value(test::random_tensor(rig.backend, p->shape(), DType::kF64, hash_name(p->name())));
  }
  const Tensor x = test::random_tensor(rig.backend, Shape{2, 6, 15}, DType::kF64, 1);
  const std::vector<double> expected = composed(rig, x).to_doubles();
  const std::vector<double> got = rig.block(x, {}).to_doubles();
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == doctest::Approx(expected[i]).epsilon(1e-14));
  }
}

TEST_CASE("block: recompute changes no bit of values and gradients and keeps only the input") {
  for (ModelConfig config : configs()) {
    config.attention_dropout = config.residual_dropout = 0.3;
    Rig rig(config);
    Tape tape(rig.backend);
    for (Parameter* p : rig.block.parameters()) {
      p->set_value(test::random_tensor(rig.backend, p->shape(), DType::kF64, hash_name(p->name())));
    }
    rig.block.set_tape(&tape);
    const Shape shape = {2, 7, config.hidden};
    const Tensor dy = test::random_tensor(rig.backend, shape, DType::kF64, 2);
    const auto activations = [&] {
      return rig.backend.ledger().usage().current[static_cast<size_t>(MemoryCategory::kActivation)];
    };
    std::vector<std::vector<double>> results[2];
    size_t kept[2];
    for (const bool again : {false, true}) {
      rig.block.set_recompute(again ? RecomputeMode::kFull : RecomputeMode::kNone);
      const test::Leaf x(tape, test::random_tensor(rig.backend, shape, DType::kF64, 1));
      const size_t before = activations();
      const Tensor y = rig.block(x.value(), rig.training());
      kept[again] = activations() - before;
      tape.backward(y, dy);
      results[again] = {y.to_doubles(), x.gradient().to_doubles()};
      for (Parameter* p : rig.block.parameters()) {
        results[again].push_back(p->gradient().to_doubles());
        CHECK(p->pending_uses() == 0);
        p->clear_gradient();
      }
    }
    CHECK(results[0] == results[1]);
    CHECK(kept[1] == rounded_bytes(static_cast<size_t>(shape.numel()) * 8));  // its output
    CHECK(kept[0] > 5 * kept[1]);
  }
}

}  // namespace
}  // namespace fsdp::models
