// Whole models: logits, loss and gradients against Hugging Face's in float64, the loss of tiny
// models against finite differences, dropout and recompute, labels, the last position alone.
// Requirements: S1.2, S2.4, S3.2.
#include "models/causal_lm.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "models/input_rules.h"
#include "models/key_bias.h"
#include "models/names.h"
#include "models/weights.h"
#include "tests/support/gradient_check.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_models.h"
#include "tools/verify/expected_results.h"

namespace fsdp::models {
namespace {

using Doubles = std::vector<double>;

std::vector<int32_t> random_tokens(int64_t count, int64_t vocabulary, uint64_t seed) {
  std::vector<int32_t> tokens;
  for (const double x : test::random_values(count, seed, 0, static_cast<double>(vocabulary))) {
    tokens.push_back(static_cast<int32_t>(x));
  }
  return tokens;
}

// ---------------------------------------------------------------------------- Hugging Face

// max |a - b| / max |b|, the measure of the fixtures.
double difference(const Doubles& a, const Doubles& b) {
  double error = 0, largest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    error = std::max(error, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return error / largest;
}

// The attention mask of a batch, where there is one.
struct Padding {
  Padding(const tools::ExpectedTensors& batch, const ModelConfig& config, Backend& backend) {
    const std::vector<std::string> names = batch.names();
    if (std::find(names.begin(), names.end(), "attention_mask") == names.end()) return;
    const std::vector<int32_t> mask = batch.read_integers("attention_mask");
    bias = make_key_bias(config, backend, DType::kF64, mask, batch.shape("attention_mask")[0]);
  }
  const Tensor* key_bias() const { return bias.defined() ? &bias : nullptr; }

  Tensor bias;
};

TEST_CASE("model: logits, loss and every gradient of Hugging Face folders in float64") {
  for (const char* name : {"gpt2", "gpt2_5heads", "llama_gqa_llama3", "llama_linear_tied",
                           "bloom_padded", "neox_parallel", "mistral_window4", "qwen2_tied"}) {
    CAPTURE(name);
    const tools::ExpectedResults expected =
        tools::read_expected_results(test::fixture_path("models") / name, {.dtype = DType::kF64});
    const tools::ExpectedPass& pass = *expected.pass;
    const tools::ExpectedTensors& tensors = *pass.logits;  // and the batch
    const ModelConfig& config = expected.config;
    const double wider = config.family == "bloom" ? 1e4 : 1;  // its rounded constant in GELU
    const std::vector<int64_t> extents = tensors.shape("input_ids");
    const int64_t rows = extents[0], length = extents[1];
    cpu::CpuBackend backend;
    Tape tape(backend);
    CausalLM model(config, backend, DType::kF64, length);
    const FillFunction fill = from_folder(expected.folder, config, model.parameters());
    for (Parameter* p : model.parameters()) {
      Tensor values = Tensor::empty(backend, Shape{p->numel()}, DType::kF64);
      fill(*p, 0, values);
      p->set_value(values.view(p->shape()));
    }
    model.set_tape(&tape);
    const Tensor tokens =
        Tensor::from_host(backend, Shape{rows, length}, tensors.read_integers("input_ids"));
    const Padding padding(tensors, config, backend);
    const ForwardContext context = {.key_bias = padding.key_bias()};
    {
      const Tape::Pause pause(tape);
      const Doubles got = model.logits(tokens, context).to_doubles();
      CHECK(difference(got, tensors.read("logits")) < *pass.logits_limit * wider);  // padded, too
    }
    const std::vector<int32_t> labels =
        shifted_labels(tensors.read_integers("labels"), rows, length);
    const double labelled = static_cast<double>(
        std::count_if(labels.begin(), labels.end(), [](int32_t l) { return l != kIgnoreIndex; }));
    const Tensor loss = model.loss(tokens, Tensor::from_host(backend, Shape{rows * length}, labels),
                                   context, 1 / labelled);
    CHECK(std::abs(loss.item() / labelled / pass.loss - 1) < *pass.loss_limit * wider);
    tape.backward(loss);
    for (Parameter* p : model.parameters()) {
      CAPTURE(p->name());
      const Doubles gradient = pass.gradients->read(hugging_face_name(config, p->name()));
      CHECK(difference(p->gradient().to_doubles(), gradient) < *pass.gradients_limit * wider);
      CHECK(p->pending_uses() == 0);
    }
  }
}

// ---------------------------------------------------------------------------- Tiny models

struct Tiny {
  Tiny(const ModelConfig& config, DType dtype) : model(config, backend, dtype, 8) {
    const int64_t count = rows * length;
    std::vector<int32_t> ids = random_tokens(count, config.vocabulary, 1);
    tokens = Tensor::from_host(backend, Shape{rows, length}, ids);
    ids[3] = kIgnoreIndex;
    labels = Tensor::from_host(backend, Shape{count}, shifted_labels(ids, rows, length));
  }
  void fill(Tape* tape, DType dtype) {
    for (Parameter* p : model.parameters()) {
      const uint64_t seed = hash_name(p->name());
      p->set_value(test::random_tensor(backend, p->shape(), dtype, seed, -0.6, 0.6));
    }
    model.set_tape(tape);
  }
  ForwardContext training() {
    return {.training = true, .dropout = {.seed = 3, .step = 2}, .samples = &samples};
  }

  static constexpr int64_t rows = 3, length = 7;
  cpu::CpuBackend backend;
  CausalLM model;
  Tensor tokens, labels;
  Tensor samples = Tensor::from_host(backend, Shape{rows}, std::vector<int64_t>{5, 2, 9});
};

std::vector<ModelConfig> configs() {
  ModelConfig untied_gpt2 = test::tiny_gpt2(), tied_llama = test::tiny_llama();
  untied_gpt2.tied_head = false;
  tied_llama.tied_head = true;
  tied_llama.kv_heads = 1;
  ModelConfig fairseq = test::tiny_fairseq(), normed_bloom = test::tiny_bloom();
  fairseq.padding_row = -1;  // differences see what its gradient leaves out
  normed_bloom.normed_residual = true;
  return {test::tiny_gpt2(),    untied_gpt2,       test::tiny_llama(), tied_llama,
          test::tiny_bloom(),   test::tiny_neox(), normed_bloom,       fairseq,
          test::tiny_workshop()};
}

TEST_CASE("model: gradients of the loss against finite differences, every parameter") {
  for (ModelConfig config : configs()) {
    for (const double dropout : {0.0, 0.2}) {
      CAPTURE(config.family);
      CAPTURE(config.tied_head);
      CAPTURE(dropout);
      config.embedding_dropout = config.attention_dropout = config.residual_dropout = dropout;
      // Differences do not see past a kink; ReLU's gradient is in workshop_gpt_test.cpp.
      if (config.activation == Activation::kRelu) config.activation = Activation::kGeluErf;
      Tiny tiny(config, DType::kF64);
      test::GradientCheck check(tiny.backend);
      check.tolerance = 1e-7;
      for (Parameter* p : tiny.model.parameters()) check.attach(*p, -0.6, 0.6);
      check.run_loss(
          [&](const auto&) {
            return tiny.model.loss(tiny.tokens, tiny.labels, tiny.training(), 0.05);
          },
          0.05, 2);
    }
  }
}

TEST_CASE("model: recompute in every or every second block changes no bit") {
  for (ModelConfig config : configs()) {
    config.layers = 3;
    config.embedding_dropout = config.attention_dropout = config.residual_dropout = 0.2;
    Tiny tiny(config, DType::kF32);
    Tape tape(tiny.backend);
    tiny.fill(&tape, DType::kF32);
    std::vector<std::vector<Doubles>> results;
    for (const int64_t k : {0, 1, 2}) {
      tiny.model.set_recompute(k > 0 ? RecomputeMode::kFull : RecomputeMode::kNone,
                               std::max<int64_t>(k, 1));
      const Tensor loss = tiny.model.loss(tiny.tokens, tiny.labels, tiny.training(), 0.05);
      tape.backward(loss);
      results.push_back({loss.to_doubles()});
      for (Parameter* p : tiny.model.parameters()) {
        results.back().push_back(p->gradient().to_doubles());
        p->clear_gradient();
      }
    }
    CHECK(results[1] == results[0]);
    CHECK(results[2] == results[0]);
  }
}

TEST_CASE("model: the loss is the cross-entropy of its logits") {
  for (const ModelConfig& config : configs()) {
    Tiny tiny(config, DType::kF64);
    tiny.fill(nullptr, DType::kF64);
    const Doubles logits = tiny.model.logits(tiny.tokens, {}).to_doubles();
    const std::vector<int32_t> labels = tiny.labels.to_host<int32_t>();
    const auto width = static_cast<size_t>(config.vocabulary);
    double expected = 0;
    for (size_t row = 0; row < labels.size(); ++row) {
      if (labels[row] == kIgnoreIndex) continue;
      double total = 0;
      for (size_t v = 0; v < width; ++v) total += std::exp(logits[row * width + v]);
      expected += std::log(total) - logits[row * width + static_cast<size_t>(labels[row])];
    }
    CHECK(tiny.model.loss(tiny.tokens, tiny.labels, {}, 1).item() ==
          doctest::Approx(expected).epsilon(1e-13));
  }
}

TEST_CASE("model: last_logits is the last row of logits; later tokens change nothing before them") {
  for (const ModelConfig& config : configs()) {
    Tiny tiny(config, DType::kF64);
    tiny.fill(nullptr, DType::kF64);
    const Doubles all = tiny.model.logits(tiny.tokens, {}).to_doubles();
    const Doubles last = tiny.model.last_logits(tiny.tokens, {}).to_doubles();
    const auto width = static_cast<size_t>(config.vocabulary);
    for (size_t row = 0; row < Tiny::rows; ++row) {
      const double* expected = &all[((row + 1) * Tiny::length - 1) * width];
      for (size_t v = 0; v < width; ++v) {  // other products of matrices: other rounding
        CHECK(last[row * width + v] == doctest::Approx(expected[v]).epsilon(1e-13));
      }
    }
    std::vector<int32_t> ids = tiny.tokens.to_host<int32_t>();
    ids[6] = (ids[6] + 1) % static_cast<int32_t>(config.vocabulary);
    const Tensor changed = Tensor::from_host(tiny.backend, tiny.tokens.shape(), ids);
    const Doubles other = tiny.model.logits(changed, {}).to_doubles();
    CHECK(std::equal(all.begin(), all.begin() + static_cast<long>(6 * width), other.begin()));
    CHECK_FALSE(std::equal(&all[6 * width], &all[7 * width], &other[6 * width]));
  }
}

TEST_CASE("model: bf16 stays close to f64") {
  for (const ModelConfig& config : configs()) {
    Doubles logits[2];
    for (const DType dtype : {DType::kF64, DType::kBF16}) {
      Tiny tiny(config, dtype);
      tiny.fill(nullptr, DType::kBF16);
      for (Parameter* p : tiny.model.parameters()) {
        p->set_value(test::make_tensor(tiny.backend, p->shape(), dtype, p->value().to_doubles()));
      }
      logits[dtype == DType::kBF16] = tiny.model.logits(tiny.tokens, {}).to_doubles();
    }
    CHECK(difference(logits[1], logits[0]) < 0.03);
  }
}

TEST_CASE("model: what runs before the first block and after the last one") {
  cpu::CpuBackend backend;
  const auto names = [&](models::ModelConfig config) {
    models::CausalLM model(config, backend, DType::kF32, 1);
    std::string out;
    for (const Module* module : model.before_blocks()) out += module->name() + " ";
    out += "|";
    for (const Module* module : model.after_blocks()) out += " " + module->name();
    return out;
  };
  models::ModelConfig config = models::preset("gpt2-124m");
  config.layers = 1;
  CHECK(names(config) == "embedding.tokens embedding.positions | final_norm head");
  config.embedding_norm = true;
  config.positions = models::PositionKind::kAlibi;
  CHECK(names(config) == "embedding.tokens embedding.norm | final_norm head");
  config.final_norm = false;
  CHECK(names(config) == "embedding.tokens embedding.norm | head");
}

TEST_CASE("model: probe shows the embedding, every block and the final norm, in order") {
  Tiny tiny(test::tiny_llama(), DType::kF32);
  tiny.fill(nullptr, DType::kF32);
  std::vector<std::string> seen;
  tiny.model.probe(tiny.tokens, {}, [&](const std::string& module, const Tensor& output) {
    seen.push_back(module);
    CHECK(output.shape() == Shape{Tiny::rows, Tiny::length, 13});
  });
  CHECK(seen == std::vector<std::string>{"embedding", "blocks.0", "blocks.1", "final_norm"});
}

}  // namespace
}  // namespace fsdp::models
