// fairseq's GPT-3 against its forward pass in plain loops (fairseq.modules.TransformerDecoderLayer,
// normalize_before), initial values, config.json, and training on two ranks.
// Requirements: S4.1.
#include <cmath>
#include <numbers>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/causal_lm.h"
#include "models/family.h"
#include "models/weights.h"
#include "tests/support/plain_model.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"

namespace fsdp::models {
namespace {

using test::Doubles;
using test::Weights;

constexpr int kHeads = 3;
constexpr size_t kHidden = 6;
constexpr int64_t kFfn = 7, kVocabulary = 11, kLayers = 2, kTokens = 5;

const Json kConfig = {{"model_type", "transformer_lm_gpt3"}, {"vocab_size", kVocabulary},
                      {"decoder_embed_dim", kHidden},        {"decoder_layers", kLayers},
                      {"decoder_attention_heads", kHeads},   {"decoder_ffn_embed_dim", kFfn},
                      {"tokens_per_sample", kTokens}};

test::Shapes shapes(bool tied) {
  const auto width = static_cast<int64_t>(kHidden);
  test::Shapes all = {{"decoder.embed_tokens.weight", {kVocabulary, width}},
                      {"decoder.embed_positions.weight", {kTokens + 2, width}},
                      {"decoder.layer_norm.weight", {width}},
                      {"decoder.layer_norm.bias", {width}}};
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string layer = fmt::format("decoder.layers.{}.", i);
    for (const char* part :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"}) {
      all.push_back({layer + part + ".weight", {width, width}});
      all.push_back({layer + part + ".bias", {width}});
    }
    for (const char* part : {"self_attn_layer_norm", "final_layer_norm"}) {
      all.push_back({layer + part + ".weight", {width}});
      all.push_back({layer + part + ".bias", {width}});
    }
    all.push_back({layer + "fc1.weight", {kFfn, width}});
    all.push_back({layer + "fc1.bias", {kFfn}});
    all.push_back({layer + "fc2.weight", {width, kFfn}});
    all.push_back({layer + "fc2.bias", {width}});
  }
  if (!tied) all.push_back({"decoder.output_projection.weight", {kVocabulary, width}});
  return all;
}

double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }

constexpr int32_t kPadding = 1;

// fairseq's make_positions: the padding index, and one more for every other token up to this one.
std::vector<int32_t> make_positions(const std::vector<int32_t>& tokens) {
  std::vector<int32_t> positions;
  int32_t count = 0;
  for (const int32_t token : tokens) {
    count += token != kPadding;
    positions.push_back((token != kPadding ? count : 0) + kPadding);
  }
  return positions;
}

// Rows of a table with a padding_idx, whose row is looked up and learns nothing from it.
Doubles looked_up(const std::string& name, const Weights& w, const Weights& constant,
                  const std::vector<int32_t>& rows) {
  Doubles out;
  for (const int32_t row : rows) {
    const Doubles one =
        test::plain::rows_of((row == kPadding ? constant : w).at(name), {row}, kHidden);
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

Doubles plain_model(const Weights& w, const Weights& constant, const std::vector<int32_t>& tokens) {
  namespace plain = test::plain;
  const auto named = [&](const std::string& layer, const char* name, const Doubles& x) {
    return plain::linear(x, w.at(layer + name + ".weight"), w.at(layer + name + ".bias"));
  };
  const auto norm = [&](const std::string& name, const Doubles& x) {
    return plain::layer_norm(x, w.at(name + ".weight"), w.at(name + ".bias"), 1e-5);
  };
  std::vector<bool> padding;  // self_attn_padding_mask
  for (const int32_t token : tokens) padding.push_back(token == kPadding);
  Doubles x = looked_up("decoder.embed_tokens.weight", w, constant, tokens);
  for (double& value : x) value *= std::sqrt(static_cast<double>(kHidden));
  x = plain::add(x,
                 looked_up("decoder.embed_positions.weight", w, constant, make_positions(tokens)));
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string layer = fmt::format("decoder.layers.{}.", i);
    const Doubles a = norm(layer + "self_attn_layer_norm", x);
    const Doubles mixed = plain::causal_attention(
        named(layer, "self_attn.q_proj", a), named(layer, "self_attn.k_proj", a),
        named(layer, "self_attn.v_proj", a), kHeads, kHidden, padding);
    x = plain::add(x, named(layer, "self_attn.out_proj", mixed));
    const Doubles m = norm(layer + "final_layer_norm", x);
    x = plain::add(x, named(layer, "fc2", plain::apply(named(layer, "fc1", m), gelu)));
  }
  const auto head = w.find("decoder.output_projection.weight");
  return plain::linear(norm("decoder.layer_norm", x),
                       head == w.end() ? w.at("decoder.embed_tokens.weight") : head->second,
                       Doubles(static_cast<size_t>(kVocabulary)));
}

TEST_CASE("fairseq gpt3: logits, loss and gradients equal those of plain loops in float64") {
  for (const std::vector<int32_t>& tokens :
       {std::vector<int32_t>{2, 7, 7, 0, 10, 4, 3, 2, 9, 5}, {2, 7, 1, 0, 10, 4, 1, 1, 9, 1}}) {
    for (const bool tied : {true, false}) {
      CAPTURE(tied);
      CAPTURE(tokens[2]);
      Json config = kConfig;
      config["share_decoder_input_output_embed"] = tied;
      test::check_against_plain(config.dump(), shapes(tied), {tokens, 2, kTokens},
                                [constant = test::random_weights(shapes(tied))](
                                    const Weights& w, const std::vector<int32_t>& row) {
                                  return plain_model(w, constant, row);
                                });
    }
  }
}

// build_embedding, LearnedPositionalEmbedding, MultiheadAttention.reset_parameters and
// TransformerDecoderLayer.build_fc1 of fairseq: normal tables; xavier_uniform_ matrices, with a
// gain of 1 / sqrt(2) for q, k and v, whose biases are those of torch.nn.Linear.
TEST_CASE("fairseq gpt3: initial values of the tables, q, k, v and the other layers") {
  cpu::CpuBackend backend;
  const ModelConfig config = preset("transformer_lm_gpt3_small");  // hidden 768, ffn 3072
  const CausalLM model(config, backend, DType::kF32, 4);
  const auto initial = [&](std::string_view name) {
    for (const Parameter* p : model.parameters()) {
      if (p->name() == name) return p->initializer();
    }
    return Initializer{.deviation = -1, .bound = -1};
  };
  for (const char* table : {"embedding.tokens.weight", "embedding.positions.weight"}) {
    CHECK(initial(table).deviation == doctest::Approx(1 / std::sqrt(768.0)));
    CHECK(initial(table).bound == 0);
  }
  for (const char* part : {"q", "k", "v"}) {
    const std::string layer = std::string("blocks.0.attention.") + part;
    CHECK(initial(layer + ".weight").bound ==
          doctest::Approx(std::numbers::sqrt2 / 2 * std::sqrt(6 / 1536.0)));
    CHECK(initial(layer + ".bias").bound == doctest::Approx(1 / std::sqrt(768.0)));
  }
  CHECK(initial("blocks.0.attention.out.weight").bound == doctest::Approx(std::sqrt(6 / 1536.0)));
  for (const char* layer : {"blocks.0.mlp.up", "blocks.0.mlp.down"}) {
    const std::string name = layer;
    CHECK(initial(name + ".weight").bound == doctest::Approx(std::sqrt(6 / 3840.0)));
    CHECK(initial(name + ".bias").bound == 0);
    CHECK(initial(name + ".bias").deviation == 0);
  }
  CHECK(config.padding_row == 1);  // its table has a padding_idx
}

// A table of two columns in pieces that cut the row.
TEST_CASE("fairseq gpt3: the padding token's rows start at zero") {
  cpu::CpuBackend backend;
  const FillFunction fill = from_scratch(3, 1), plain = from_scratch(3);
  for (const char* name : {"embedding.tokens.weight", "embedding.positions.weight", "other"}) {
    const Parameter table(name, Shape{4, 2}, {.deviation = 1}, true);
    Doubles got, expected;
    for (const auto& [first, count] : {std::pair{0, 3}, std::pair{3, 1}, std::pair{4, 4}}) {
      Tensor part = Tensor::empty(backend, Shape{count}, DType::kF64);
      for (auto [from, to] : {std::pair{&fill, &got}, std::pair{&plain, &expected}}) {
        (*from)(table, first, part);
        const Doubles values = part.to_doubles();
        to->insert(to->end(), values.begin(), values.end());
      }
    }
    if (std::string(name) != "other") expected[2] = expected[3] = 0;
    CHECK(got == expected);
    CHECK(expected[1] != 0);
  }
}

TEST_CASE("fairseq gpt3: what the arguments of fairseq say that is not done is refused") {
  const auto error = [](const char* key, const Json& value) {
    Json json = kConfig;
    json[key] = value;
    return test::error_of([&] { parse_config(json.dump(), "config.json"); });
  };
  CHECK(error("decoder_learned_pos", true) == "");
  CHECK(error("decoder_learned_pos", false) ==
        "config.json: decoder_learned_pos: false (sinusoidal positions) is not supported by this "
        "build");
  CHECK(
      test::contains(error("decoder_normalize_before", false), "decoder_normalize_before: false"));
  CHECK(test::contains(error("no_decoder_final_norm", true), "no_decoder_final_norm: true"));
  Json json = kConfig;
  json["no_scale_embedding"] = true;
  CHECK(parse_config(json.dump(), "config.json").embedding_scale() == 1);
  CHECK(parse_config(kConfig.dump(), "config.json").embedding_scale() ==
        std::sqrt(static_cast<double>(kHidden)));
}

TEST_CASE("fairseq gpt3: two ranks train it like one") {
  test::RunSpec spec;
  spec.subject = test::causal_lm(test::small_fairseq());
  spec.steps = 6;
  spec.fsdp.param_dtype = spec.fsdp.reduce_dtype = DType::kF64;
  spec.ranks = 1;
  // Biases of keys have no gradient: they stay at zero, but for rounding.
  const auto train = [&] {
    test::RunResult result = test::train(spec);
    std::erase_if(result.parameters,
                  [](const auto& item) { return item.first.ends_with("attention.k.bias"); });
    return result;
  };
  const test::RunResult alone = train();
  CHECK(alone.losses.back() < 0.9 * alone.losses.front());
  spec.ranks = 2;
  const test::RunResult both = train();
  CHECK(test::loss_difference(both, alone) < 1e-11);
  CHECK(test::norm_difference(both, alone) < 1e-11);
  CHECK(test::largest_difference(both.parameters, alone.parameters) < 1e-11);
}

}  // namespace
}  // namespace fsdp::models
