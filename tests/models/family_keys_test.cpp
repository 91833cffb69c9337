// Keys of config.json that transformers reads in its own way: which of two wins, what an absent one
// means, which values ask for something that this build does not compute.
#include "models/family_keys.h"

#include <doctest/doctest.h>

#include "models/family.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp::models {
namespace {

using test::error_of;

ModelConfig read(const Json& json) { return parse_config(json.dump(), "F"); }

std::string refusal(const Json& json) {
  return error_of([&] { read(json); });
}

Json config(const char* family, const Json& keys) {
  Json json = {{"model_type", family}};
  json.update(keys);
  return json;
}

TEST_CASE("config keys: the table of families names every family, and no other") {
  std::ifstream file(test::source_folder() / "tools" / "model_folders" / "README.md");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::string chapter = text.substr(text.find("|---", text.find("## Families")));
  size_t rows = 0;
  for (size_t at = 0; (at = chapter.find("\n| `", at)) != std::string::npos; ++at) ++rows;
  CHECK(rows == families().size());
  for (const Family* family : families()) {
    CAPTURE(family->name);
    CHECK(test::contains(chapter, fmt::format("\n| `{}` | ", family->name)));
  }
}

TEST_CASE("config keys: a window that shows a query no key is refused") {
  for (const int window : {0, -3}) {
    CAPTURE(window);
    const std::string expected = fmt::format(
        "F: sliding_window: expected at least 1, or null for no window, got {}: a query would see "
        "no key",
        window);
    CHECK(refusal(config("mistral", {{"sliding_window", window}})) == expected);
    Json qwen = config("qwen2", {{"sliding_window", window}, {"max_window_layers", 0}});
    CHECK(read(qwen).window == 0);  // not in use
    qwen["use_sliding_window"] = true;
    CHECK(refusal(qwen) == expected);
  }
}

TEST_CASE("config keys: weights that are no plain numbers, and BLOOM's sliced products") {
  for (const char* family : {"gpt2", "llama", "mistral", "qwen2", "bloom", "gpt_neox"}) {
    CHECK(refusal(config(family, {{"quantization_config", {{"quant_method", "fp8"}}}})) ==
          "F: quantization_config: a model of quantized weights is not supported by this build");
    read(config(family, {{"quantization_config", nullptr}}));
  }
  CHECK(refusal(config("bloom", {{"slow_but_exact", true}, {"pretraining_tp", 4}})) ==
        "F: slow_but_exact: true with pretraining_tp above 1 is not supported by this build");
  read(config("bloom", {{"slow_but_exact", true}, {"pretraining_tp", 1}}));
  read(config("bloom", {{"slow_but_exact", true}}));
  read(config("bloom", {{"slow_but_exact", false}, {"pretraining_tp", 4}}));
}

TEST_CASE("config keys: layer types of one kind decide over Qwen2's use_sliding_window") {
  const Json full = {"full_attention", "full_attention"};
  const Json sliding = {"sliding_attention", "sliding_attention"};
  Json qwen = config("qwen2", {{"num_hidden_layers", 2}, {"layer_types", full}});
  CHECK(read(qwen).window == 0);
  qwen["use_sliding_window"] = true;
  qwen["max_window_layers"] = 0;
  CHECK(read(qwen).window == 0);
  qwen["layer_types"] = sliding;
  CHECK(read(qwen).window == 4096);
  qwen["max_window_layers"] = 28;  // more than there are
  CHECK(read(qwen).window == 4096);
  qwen["sliding_window"] = nullptr;
  CHECK(refusal(qwen) ==
        "F: layer_types: sliding_attention without a sliding_window is not supported by this "
        "build");
  qwen["use_sliding_window"] = false;
  CHECK(refusal(qwen) ==
        "F: layer_types: sliding_attention without use_sliding_window is not supported by this "
        "build");
  qwen["layer_types"] = {"full_attention", "sliding_attention"};
  CHECK(refusal(qwen) ==
        "F: layer_types: expected full_attention in every layer, got sliding_attention");
  qwen["layer_types"] = {"full_attention"};
  CHECK(refusal(qwen) == "F: layer_types: expected one type for each of 2 layers, got 1");
  qwen["layer_types"] = {"chunked_attention", "chunked_attention"};
  CHECK(refusal(qwen) ==
        "F: layer_types: expected full_attention or sliding_attention, got chunked_attention");
  // Mistral's window alone decides there.
  Json mistral = config("mistral", {{"num_hidden_layers", 2}, {"layer_types", full}});
  CHECK(refusal(mistral) ==
        "F: layer_types: expected sliding_attention in every layer, as sliding_window says, got "
        "full_attention");
  mistral["sliding_window"] = nullptr;
  CHECK(read(mistral).window == 0);
}

TEST_CASE("config keys: of type and rope_type in rope_scaling, the one that transformers takes") {
  using Scaling = RopeConfig::Scaling;
  const Json types = {{"rope_type", "default"}, {"type", "linear"}, {"factor", 2}};
  for (const char* family : {"llama", "qwen2", "gpt_neox"}) {  // type is copied over rope_type
    CHECK(read(config(family, {{"rope_scaling", types}})).rope.scaling == Scaling::kLinear);
  }
  CHECK(read(config("mistral", {{"rope_scaling", types}})).rope.scaling == Scaling::kNone);
  for (const char* family : {"llama", "mistral"}) {
    CHECK(read(config(family, {{"rope_parameters", types}})).rope.scaling == Scaling::kNone);
    CHECK(read(config(family, {{"rope_parameters", {{"rope_theta", 2e4}}}})).rope.theta == 2e4);
    CHECK(refusal(config(family, {{"rope_scaling", {{"factor", 2}}}})) ==
          "F: rope_scaling: rope_type: missing");
    // transformers passes over a theta in rope_scaling
    const Json inside = {{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 2e4}};
    CHECK(
        refusal(config(family, {{"rope_scaling", inside}})) ==
        "F: rope_scaling: expected no rope_theta and no partial_rotary_factor, or what rope_theta "
        "and partial_rotary_factor outside of rope_scaling say (10000 and 1), got 20000 and 1");
    CHECK(read(config(family, {{"rope_theta", 2e4}, {"rope_scaling", inside}})).rope.theta == 2e4);
  }
}

TEST_CASE("config keys: activations of every family, scores of GPT-2's layers") {
  CHECK(read({{"model_type", "gpt2"}, {"activation_function", "quick_gelu"}}).activation ==
        Activation::kQuickGelu);
  CHECK(read({{"model_type", "gpt_neox"}, {"hidden_act", "silu"}}).activation == Activation::kSilu);
  for (const char* family : {"llama", "mistral", "qwen2"}) {
    CHECK(read(config(family, {{"hidden_act", "relu"}})).activation == Activation::kRelu);
    CHECK(read(config(family, {{"hidden_act", "linear"}})).activation == Activation::kNone);
  }
  Json scores = config("gpt2", {{"scale_attn_by_inverse_layer_idx", true}});
  CHECK(read(scores).attention_scale(3) == 1.0 / 8 / 4);  // heads are 64 wide
  scores["scale_attn_weights"] = false;
  CHECK(read(scores).attention_scale(3) == 1.0 / 4);
  scores["scale_attn_by_inverse_layer_idx"] = false;
  CHECK(read(scores).attention_scale(3) == 1);
  CHECK(read(config("gpt2", Json::object())).attention_scale(3) == 1.0 / 8);
}

TEST_CASE("config keys: swish is silu, and a head's width is what transformers takes") {
  CHECK(config_json(read(config("llama", {{"hidden_act", "swish"}})), "float32") ==
        config_json(read(config("llama", {{"hidden_act", "silu"}})), "float32"));
  for (const char* family : {"gpt2", "bloom", "gpt_neox"}) {
    const ModelConfig c = read(config(family, Json::object()));
    CHECK(read(config(family, {{"head_dim", c.head_dim}})).head_dim == c.head_dim);
    CHECK(refusal(config(family, {{"head_dim", 20}})) ==
          fmt::format("F: head_dim: expected {} / {} = {}, as this family has it, got 20", c.hidden,
                      c.heads, c.head_dim));
  }
}

TEST_CASE("config keys: what a file leaves out is the default of transformers' class") {
  const Json fixture = read_json_file(test::fixture_path("config_keys.json"));
  for (const auto& [name, keys] : fixture["families"].items()) {
    CAPTURE(name);
    const ModelConfig c = read(config(name.c_str(), Json::object()));
    const Json written = parse_json(config_json(c, "float32"), "written");
    int compared = 0;
    for (const auto& [key, entry] : keys.items()) {
      if (!written.contains(key) || entry["default"].is_null()) continue;
      CAPTURE(key);
      CHECK(written[key] == entry["default"]);
      ++compared;
    }
    CHECK(compared >= 11);
    CHECK(refusal(config(name.c_str(), {{"vocab_size", nullptr}})) ==
          "F: vocab_size: expected an integer of at most 32 bits, got null");
  }
  CHECK(read({{"model_type", "gpt2"}}).ffn == 4 * 768);
  CHECK(read({{"model_type", "llama"}}).kv_heads == 32);
  CHECK(read({{"model_type", "llama"}, {"num_key_value_heads", nullptr}}).kv_heads == 32);
}

}  // namespace
}  // namespace fsdp::models
