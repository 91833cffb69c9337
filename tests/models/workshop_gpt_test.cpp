// The workshop's GPT against torch.nn.TransformerEncoderLayer's documented formulas (norm_first
// false, ReLU) in plain loops, its parameter counts, config.json, and training on two ranks.
// Requirements: S1.17.
#include <doctest/doctest.h>

#include "core/io/json.h"
#include "models/family.h"
#include "tests/support/plain_model.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"

namespace fsdp::models {
namespace {

using test::Doubles;
using test::Weights;

constexpr int kHeads = 2;
constexpr size_t kHidden = 6;
constexpr int64_t kFfn = 7, kVocabulary = 11, kLayers = 2, kTokens = 5;

const Json kConfig = {{"model_type", "workshop_gpt"}, {"vocab_size", kVocabulary},
                      {"hidden_size", kHidden},       {"num_layers", kLayers},
                      {"num_heads", kHeads},          {"dim_feedforward", kFfn},
                      {"seq_length", kTokens},        {"dropout", 0.1}};

test::Shapes shapes(bool tied) {
  const auto width = static_cast<int64_t>(kHidden);
  test::Shapes all = {{"token_embedding.weight", {kVocabulary, width}},
                      {"lm_head.bias", {kVocabulary}}};
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string layer = fmt::format("transformer.layers.{}.", i);
    all.push_back({layer + "self_attn.in_proj_weight", {3 * width, width}});
    all.push_back({layer + "self_attn.in_proj_bias", {3 * width}});
    all.push_back({layer + "self_attn.out_proj.weight", {width, width}});
    all.push_back({layer + "self_attn.out_proj.bias", {width}});
    all.push_back({layer + "linear1.weight", {kFfn, width}});
    all.push_back({layer + "linear1.bias", {kFfn}});
    all.push_back({layer + "linear2.weight", {width, kFfn}});
    all.push_back({layer + "linear2.bias", {width}});
    for (const char* part : {"norm1", "norm2"}) {
      all.push_back({layer + part + ".weight", {width}});
      all.push_back({layer + part + ".bias", {width}});
    }
  }
  if (!tied) all.push_back({"lm_head.weight", {kVocabulary, width}});
  return all;
}

double relu(double x) { return x > 0 ? x : 0; }

Doubles part_of(const Doubles& all, size_t part, size_t parts) {
  const auto size = static_cast<std::ptrdiff_t>(all.size() / parts);
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(part) * size;
  return {begin, begin + size};
}

Doubles plain_model(const Weights& w, const std::vector<int32_t>& tokens) {
  namespace plain = test::plain;
  Doubles x = plain::rows_of(w.at("token_embedding.weight"), tokens, kHidden);
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string layer = fmt::format("transformer.layers.{}.", i);
    const auto linear = [&](const char* name, const Doubles& input) {
      return plain::linear(input, w.at(layer + name + ".weight"), w.at(layer + name + ".bias"));
    };
    const auto norm = [&](const char* name, const Doubles& input) {
      return plain::layer_norm(input, w.at(layer + name + ".weight"), w.at(layer + name + ".bias"),
                               1e-5);
    };
    const auto in_projection = [&](size_t part) {
      return plain::linear(x, part_of(w.at(layer + "self_attn.in_proj_weight"), part, 3),
                           part_of(w.at(layer + "self_attn.in_proj_bias"), part, 3));
    };
    const Doubles mixed = plain::causal_attention(in_projection(0), in_projection(1),
                                                  in_projection(2), kHeads, kHidden);
    x = norm("norm1", plain::add(x, linear("self_attn.out_proj", mixed)));
    const Doubles inner = plain::apply(linear("linear1", x), relu);
    x = norm("norm2", plain::add(x, linear("linear2", inner)));
  }
  const auto head = w.find("lm_head.weight");
  return plain::linear(x, head == w.end() ? w.at("token_embedding.weight") : head->second,
                       w.at("lm_head.bias"));
}

TEST_CASE("workshop gpt: logits, loss and gradients equal those of plain loops in float64") {
  const test::PlainBatch batch = {{2, 7, 7, 0, 10, 4, 3, 1, 9, 5}, 2, kTokens};
  for (const bool tied : {true, false}) {
    CAPTURE(tied);
    Json config = kConfig;
    config["tie_word_embeddings"] = tied;
    if (!tied) config["shift_labels"] = false;  // the single-GPU script
    test::check_against_plain(config.dump(), shapes(tied), batch, plain_model);
  }
}

TEST_CASE("workshop gpt: parameters of the weak-scaling runs") {
  CHECK(preset("workshop-gpt-3").parameter_count() == 664718136);
  CHECK(preset("workshop-gpt-6").parameter_count() == 815792952);
  CHECK(preset("workshop-gpt-12").parameter_count() == 1117942584);
  CHECK(preset("workshop-gpt-24").parameter_count() == 1722241848);
}

TEST_CASE("workshop gpt: config.json") {
  const ModelConfig config = parse_config(kConfig.dump(), "config.json");
  CHECK(config.mlp_dropout == 0.1);
  CHECK(config.residual_dropout == 0.1);
  CHECK(config.embedding_dropout == 0);
  CHECK(config.shifted_labels);
  Json single = kConfig;
  single["shift_labels"] = false;
  const ModelConfig alone = parse_config(single.dump(), "config.json");
  CHECK(!alone.shifted_labels);
  CHECK(!parse_config(config_json(alone, "float32"), "written").shifted_labels);
  Json first = kConfig;
  first["norm_first"] = true;
  CHECK(test::error_of([&] { parse_config(first.dump(), "config.json"); }) ==
        "config.json: norm_first: true is not supported by this build");
}

TEST_CASE("workshop gpt: two ranks train it like one, with dropout") {
  test::RunSpec spec;
  spec.subject = test::causal_lm(test::small_workshop());
  spec.steps = 6;
  spec.training = true;
  spec.fsdp.param_dtype = spec.fsdp.reduce_dtype = DType::kF64;
  spec.ranks = 1;
  const test::RunResult alone = test::train(spec);
  CHECK(alone.losses.back() < 0.9 * alone.losses.front());
  spec.ranks = 2;
  const test::RunResult both = test::train(spec);
  CHECK(test::loss_difference(both, alone) < 1e-11);
  CHECK(test::norm_difference(both, alone) < 1e-11);
  CHECK(test::largest_difference(both.parameters, alone.parameters) < 1e-11);
}

}  // namespace
}  // namespace fsdp::models
