// Low-rank terms: gradients, which layers have them, how they start, what is counted and frozen.
// Requirements: S3.12.
#include "models/lora.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "models/causal_lm.h"
#include "models/input_rules.h"
#include "models/weights.h"
#include "tests/support/gradient_check.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_models.h"

namespace fsdp::models {
namespace {

using test::contains;
using Doubles = std::vector<double>;

struct Tiny {
  Tiny(const ModelConfig& config, DType dtype, const LoraConfig& lora)
      : model(config, backend, dtype, 8) {
    add_lora(model, lora);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 14; ++i) ids.push_back(i * i % 17);
    tokens = Tensor::from_host(backend, Shape{2, 7}, ids);
    labels = Tensor::from_host(backend, Shape{14}, shifted_labels(ids, 2, 7));
  }
  Tensor loss() {
    const ForwardContext context = {
        .training = true, .dropout = {.seed = 3, .step = 2}, .samples = &samples};
    return model.loss(tokens, labels, context, 0.05);
  }

  cpu::CpuBackend backend;
  CausalLM model;
  Tensor tokens, labels;
  Tensor samples = Tensor::from_host(backend, Shape{2}, std::vector<int64_t>{5, 2});
};

LoraConfig everywhere(double dropout) {
  return {.r = 2, .alpha = 3, .dropout = dropout, .targets = {"all-linear"}};
}

std::vector<ModelConfig> configs() {
  return {test::tiny_gpt2(), test::tiny_llama(), test::tiny_bloom(), test::tiny_neox()};
}

TEST_CASE("lora: gradients of the loss against finite differences, in every linear layer") {
  for (const ModelConfig& config : configs()) {
    for (const double dropout : {0.0, 0.3}) {
      CAPTURE(config.family);
      CAPTURE(dropout);
      Tiny tiny(config, DType::kF64, everywhere(dropout));
      test::GradientCheck check(tiny.backend);
      check.tolerance = 1e-7;
      // Frozen ones are checked to get none.
      for (Parameter* p : tiny.model.parameters()) check.attach(*p, -0.6, 0.6);
      check.run_loss([&](const auto&) { return tiny.loss(); }, 0.05, 2);
    }
  }
}

TEST_CASE("lora: only the terms are trained, and a frozen model saves no inputs for its weights") {
  Tiny tiny(test::tiny_llama(), DType::kF32, {.r = 2, .targets = {"q_proj", "mlp.down_proj"}});
  std::vector<std::string> trained;
  for (const Parameter* p : tiny.model.parameters()) {
    CHECK(p->trainable() == is_lora(*p));
    if (p->trainable()) trained.push_back(p->name() + " " + p->shape().str());
  }
  CHECK(trained ==
        std::vector<std::string>{
            "blocks.0.attention.q.lora_A.weight (2, 13)",
            "blocks.0.attention.q.lora_B.weight (24, 2)", "blocks.0.mlp.down.lora_A.weight (2, 17)",
            "blocks.0.mlp.down.lora_B.weight (13, 2)", "blocks.1.attention.q.lora_A.weight (2, 13)",
            "blocks.1.attention.q.lora_B.weight (24, 2)", "blocks.1.mlp.down.lora_A.weight (2, 17)",
            "blocks.1.mlp.down.lora_B.weight (13, 2)"});
}

TEST_CASE("lora: recompute replays the dropout of the terms, to the bit") {
  for (ModelConfig config : configs()) {
    config.layers = 3;
    Tiny tiny(config, DType::kF32, everywhere(0.4));
    Tape tape(tiny.backend);
    for (Parameter* p : tiny.model.parameters()) {
      const uint64_t seed = hash_name(p->name());
      p->set_value(test::random_tensor(tiny.backend, p->shape(), DType::kF32, seed, -0.6, 0.6));
    }
    tiny.model.set_tape(&tape);
    std::vector<std::vector<Doubles>> results;
    for (const RecomputeMode mode :
         {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kFull}) {
      tiny.model.set_recompute(mode, 1);
      const Tensor loss = tiny.loss();
      tape.backward(loss);
      results.push_back({loss.to_doubles()});
      for (Parameter* p : tiny.model.parameters()) {
        if (p->trainable()) results.back().push_back(p->gradient().to_doubles());
        p->clear_gradient();
      }
    }
    CHECK(results[1] == results[0]);
    CHECK(results[2] == results[0]);
  }
}

// Of the tokens' logits in training, as a function of the dropout alone.
TEST_CASE("lora: each layer drops inputs of its own") {
  cpu::CpuBackend backend;
  Parameter a("a", Shape{1, 64}, {}, true), b("b", Shape{1, 1}, {}, true);
  a.set_value(test::make_tensor(backend, a.shape(), DType::kF64, Doubles(64, 1.0)));
  b.set_value(test::make_tensor(backend, b.shape(), DType::kF64, {1.0}));
  const Tensor samples = Tensor::from_host(backend, Shape{1}, std::vector<int64_t>{4});
  const ForwardContext context = {.training = true, .dropout = {.seed = 1}, .samples = &samples};
  const auto value = [&](int64_t number, uint64_t seed) {
    const LoraTerm term = {a, b, 2, 0.5, number};
    const Tensor x = test::random_tensor(backend, Shape{1, 64}, DType::kF64, seed);
    return term.add_to(Tensor::zeros(backend, Shape{1, 1}, DType::kF64), x, context).item();
  };
  CHECK(value(0, 1) == value(0, 1));
  CHECK(value(0, 1) != value(1, 1));
}

TEST_CASE("lora: starts as PEFT does, so that at first the model is the base") {
  for (const ModelConfig& config : configs()) {
    Tiny tiny(config, DType::kF64, {.r = 40, .targets = {"all-linear"}});
    CausalLM plain(config, tiny.backend, DType::kF64, 8);
    const FillFunction fill = from_scratch(5);
    double squares = 0;
    int64_t count = 0;
    for (CausalLM* model : {&plain, &tiny.model}) {
      for (Parameter* p : model->parameters()) {
        Tensor values = Tensor::empty(tiny.backend, Shape{p->numel()}, DType::kF64);
        fill(*p, 0, values);
        p->set_value(values.view(p->shape()));
        if (!is_lora(*p)) continue;
        const double bound = 1 / std::sqrt(static_cast<double>(p->shape()[1]));
        for (const double x : values.to_doubles()) {
          if (p->name().ends_with("lora_B.weight")) {
            CHECK(x == 0);
          } else {
            CHECK(std::abs(x) <= bound);
            squares += x * x / (bound * bound);
            ++count;
          }
        }
      }
    }
    // The variance of numbers that are uniform in [-1, 1).
    CHECK(squares / static_cast<double>(count) == doctest::Approx(1.0 / 3).epsilon(0.02));
    CHECK(tiny.model.logits(tiny.tokens, {}).to_doubles() ==
          plain.logits(tiny.tokens, {}).to_doubles());
  }
}

std::string chosen(const ModelConfig& config, const LoraConfig& lora) {
  cpu::CpuBackend backend;
  CausalLM model(config, backend, DType::kF32, 8);
  std::string names;
  for (const Linear* layer : lora_layers(model, lora)) {
    names += (names.empty() ? "" : " ") + hugging_face_name(model, *layer);
  }
  return names;
}

TEST_CASE("lora: targets are names or how they end; by default those of PEFT") {
  const ModelConfig gpt2 = test::tiny_gpt2(1), llama = test::tiny_llama(1);
  CHECK(chosen(gpt2, {}) == "transformer.h.0.attn.c_attn");
  CHECK(chosen(llama, {}) == "model.layers.0.self_attn.q_proj model.layers.0.self_attn.v_proj");
  CHECK(chosen(test::tiny_bloom(1), {}) == "transformer.h.0.self_attention.query_key_value");
  CHECK(chosen(test::tiny_neox(1), {}) == "gpt_neox.layers.0.attention.query_key_value");
  CHECK(chosen(gpt2, {.targets = {"c_proj"}}) ==
        "transformer.h.0.attn.c_proj transformer.h.0.mlp.c_proj");
  CHECK(chosen(gpt2, {.targets = {"mlp.c_proj"}}) == "transformer.h.0.mlp.c_proj");
  CHECK(chosen(test::tiny_gpt2(3), {.targets = {"transformer.h.1.mlp.c_proj"}}) ==
        "transformer.h.1.mlp.c_proj");
  CHECK(chosen(llama, {.targets = {"all-linear"}}) ==
        "model.layers.0.self_attn.q_proj model.layers.0.self_attn.k_proj "
        "model.layers.0.self_attn.v_proj model.layers.0.self_attn.o_proj "
        "model.layers.0.mlp.gate_proj model.layers.0.mlp.up_proj model.layers.0.mlp.down_proj");
  CHECK(chosen(test::tiny_llama(3), {.target_pattern = R"(.*\.[02]\..*\.(q|up)_proj)"}) ==
        "model.layers.0.self_attn.q_proj model.layers.0.mlp.up_proj "
        "model.layers.2.self_attn.q_proj model.layers.2.mlp.up_proj");
}

TEST_CASE("lora: layers left out by name, by pattern and by block") {
  const ModelConfig gpt2 = test::tiny_gpt2(3);
  CHECK(chosen(gpt2, {.targets = {"c_proj"}, .excluded = {"mlp.c_proj"}, .blocks = {2, 0}}) ==
        "transformer.h.0.attn.c_proj transformer.h.2.attn.c_proj");
  CHECK(chosen(gpt2, {.excluded_pattern = ".*h[.][02][.].*"}) == "transformer.h.1.attn.c_attn");
  CHECK(chosen(gpt2, {.excluded_pattern = "c_attn", .blocks = {1}, .block_names = {"x", "h"}}) ==
        "transformer.h.1.attn.c_attn");  // a pattern is for the whole name
  for (const LoraConfig& nothing :
       {LoraConfig{.blocks = {3}}, LoraConfig{.blocks = {-1}}, LoraConfig{.excluded = {"c_attn"}},
        LoraConfig{.blocks = {0}, .block_names = {"layers"}}}) {
    CHECK(test::error_of([&] { chosen(gpt2, nothing); }) ==
          "[lora] exclude_modules, layers_to_transform: no layer of the gpt2 model is left");
  }
}

TEST_CASE("lora: ranks and alphas of single layers, the first pattern that matches") {
  const LoraConfig lora = {.r = 8,
                           .alpha = 16,
                           .ranks = {{"h.1.attn.c_attn", 2}, {"c_attn", 4}, {"h[.]0.*proj", 1}},
                           .alphas = {{"attn.c_attn", 5}, {"^transformer.*", 3}}};
  const auto expect = [&](const char* layer, int64_t r, double scale) {
    CAPTURE(layer);
    const LoraRank rank = rank_of(lora, layer);
    CHECK(rank.r == r);
    CHECK(rank.scale == scale);
  };
  expect("transformer.h.1.attn.c_attn", 2, 5.0 / 2);
  expect("transformer.h.11.attn.c_attn", 4, 5.0 / 4);
  expect("transformer.h.0.mlp.c_proj", 1, 3);
  expect("transformer.h.1.mlp.xc_attn", 8, 3.0 / 8);
  expect("transformer.hx1.attn.c_attn", 2, 5.0 / 2);  // a dot matches anything, as in PEFT
  cpu::CpuBackend backend;
  CausalLM model(test::tiny_gpt2(2), backend, DType::kF32, 8);
  add_lora(model, lora);
  for (const Parameter* p : model.parameters()) {
    if (p->name() == "blocks.0.attention.qkv.lora_A.weight") CHECK(p->shape()[0] == 4);
    if (p->name() == "blocks.1.attention.qkv.lora_A.weight") CHECK(p->shape()[0] == 2);
  }
}

// torch.nn.TransformerEncoderLayer holds in_proj_weight itself: this program has no name for it.
TEST_CASE("lora: a matrix that is no layer in PyTorch has no term") {
  const ModelConfig workshop = test::tiny_workshop(1);
  CHECK(chosen(workshop, {.targets = {"all-linear"}}) ==
        "transformer.layers.0.self_attn.out_proj transformer.layers.0.linear1 "
        "transformer.layers.0.linear2");
  CHECK(test::error_of([&] { chosen(workshop, {}); }) ==
        "[lora] targets: a workshop_gpt model has no layer for query and value that an adapter "
        "could name, so they must be given: there are self_attn.out_proj, linear1, linear2");
  CHECK(contains(test::error_of([&] { chosen(workshop, {.targets = {"self_attn.in_proj"}}); }),
                 "\"self_attn.in_proj\" matches no linear layer"));
}

TEST_CASE("lora: no pattern takes exponential time") {
  cpu::CpuBackend backend;
  CausalLM model(test::tiny_gpt2(), backend, DType::kF32, 8);
  for (const char* pattern : {"(.*)*(.*)*(.*)*(.*)*x", "(((.*)*)*)*x", "(.|.|.|.)*x"}) {
    CAPTURE(pattern);
    CHECK(contains(test::error_of([&] { lora_layers(model, {.target_pattern = pattern}); }),
                   "matches no linear layer"));
  }
  const LoraConfig usual = {.target_pattern = R"(^(?!.*mlp).*\.h\.\d{1,2}\..*(?:c_attn|c_proj)$)"};
  CHECK(lora_layers(model, usual).size() == 2 * static_cast<size_t>(model.config().layers));
}

TEST_CASE(
    "lora: a target without a layer is an error that lists the layers; so are wrong numbers") {
  const auto error = [](const LoraConfig& lora) {
    return test::error_of([&] {
      cpu::CpuBackend backend;
      CausalLM model(test::tiny_gpt2(), backend, DType::kF32, 8);
      add_lora(model, lora);
    });
  };
  CHECK(
      error({.targets = {"c_attn", "q_proj"}}) ==
      "[lora] targets: \"q_proj\" matches no linear layer in the blocks of a gpt2 model; there are "
      "attn.c_attn, attn.c_proj, mlp.c_fc, mlp.c_proj");
  CHECK(contains(error({.targets = {"attn"}}), "\"attn\" matches no linear layer"));
  CHECK(contains(error({.targets = {"lm_head"}}), "\"lm_head\" matches no linear layer"));
  CHECK(contains(error({.target_pattern = "c_attn"}), "\"c_attn\" matches no linear layer"));
  CHECK(contains(error({.target_pattern = "("}), "is no regular expression"));
  CHECK(contains(error({.target_pattern = "(.*)\\1"}), "is no regular expression"));
  CHECK(contains(error({.target_pattern = std::string(100'000, '(')}),
                 "expected at most 1000 characters, got 100000"));
  CHECK(contains(error({.target_pattern = "(?=.*(?=.*(?=.*(?!a))))"}), "at most 3 look-aheads"));
  CHECK(contains(error({.target_pattern = "((a?){6}){2,6}"}), "counts in {} of at most 32"));
  CHECK(contains(error({.target_pattern = "a{99999999999999999999}"}), "counts in {} of at most"));
  CHECK(contains(error({.r = 0}), "[lora] r: expected at least 1, got 0"));
  CHECK(contains(error({.alpha = 0}), "[lora] alpha: expected a positive number, got 0"));
  CHECK(contains(error({.dropout = 1}), "[lora] dropout: expected a number from 0"));
}

TEST_CASE("lora: the scale, and its rank-stabilised form") {
  CHECK(LoraConfig{.r = 16, .alpha = 8}.scale() == 0.5);
  CHECK(LoraConfig{.r = 16, .alpha = 8, .rank_stabilised = true}.scale() == 2);
}

TEST_CASE("lora: trainable parameters of Mistral 7B with rank 8 on all seven kinds of layer") {
  cpu::CpuBackend backend;
  CausalLM model(preset("mistral-7b"), backend, DType::kF32, 1);
  add_lora(model, {.r = 8,
                   .targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                               "down_proj"}});
  int64_t trained = 0, all = 0;
  for (const Parameter* p : model.parameters()) {
    all += p->numel();
    trained += p->trainable() ? p->numel() : 0;
  }
  CHECK(trained == 20'971'520);  // as printed by a run with PEFT
  CHECK(all == 7'262'703'616);
}

}  // namespace
}  // namespace fsdp::models
