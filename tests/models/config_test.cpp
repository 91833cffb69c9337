// Model configurations: published sizes, Hugging Face files in old and new spellings, errors that
// name file and key, and the way back.
// Requirements: S0.4, S1.2, S2.4, S3.2, S4.1.
#include "models/config.h"

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/causal_lm.h"
#include "models/family.h"
#include "tests/support/refused.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"

namespace fsdp::models {
namespace {

using test::contains;
using test::error_of;
using test::TempFolder;

ModelConfig read(const TempFolder& folder, const Json& json) {
  return read_config(folder.write("config.json", json.dump()));
}

// The message without the folder's path.
std::string read_error(const TempFolder& folder, const Json& json) {
  const std::string path = (folder / "config.json").string();
  const std::string message = error_of([&] { read(folder, json); });
  REQUIRE(contains(message, path));
  return message.substr(message.find(path) + path.size() + 2);
}

const Json kGpt2 = {{"model_type", "gpt2"}, {"vocab_size", 97}, {"n_positions", 32},
                    {"n_embd", 24},         {"n_layer", 3},     {"n_head", 3}};
const Json kLlama = {{"model_type", "llama"},    {"vocab_size", 67},
                     {"hidden_size", 32},        {"intermediate_size", 40},
                     {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                     {"num_key_value_heads", 2}, {"max_position_embeddings", 256}};

Json with(Json json, const char* key, const Json& value) {
  json[key] = value;
  return json;
}
Json without(Json json, const char* key) {
  json.erase(key);
  return json;
}

// ---------------------------------------------------------------------------- Sizes

TEST_CASE("config: presets have the published numbers of parameters") {
  const Json sizes = read_json_file(test::fixture_path("preset_sizes.json"));
  CHECK(preset_names().size() == sizes.size());
  cpu::CpuBackend backend;
  for (const auto& [name, parameters] : sizes.items()) {
    CAPTURE(name);
    const ModelConfig config = preset(name);
    validate(config);
    CHECK(config.parameter_count() == parameters);
    const CausalLM model(config, backend, DType::kBF16, 4);
    int64_t sum = 0;
    for (const Parameter* p : model.parameters()) sum += p->numel();
    CHECK(sum == parameters);
  }
  const std::string error = error_of([] { preset("other"); });
  CHECK(contains(error, "preset: expected one of gpt2-124m, "));
  CHECK(contains(error, "got \"other\""));
}

TEST_CASE("config: parameter_count is the sum over the model, for every combination of parts") {
  cpu::CpuBackend backend;
  for (ModelConfig config : {test::tiny_gpt2(3), test::tiny_llama(3)}) {
    for (int bits = 0; bits < 1024; ++bits) {
      config.tied_head = (bits & 1) != 0;
      config.qkv_bias = (bits & 2) != 0;
      config.attention_out_bias = (bits & 4) != 0;
      config.mlp_bias = (bits & 8) != 0;
      config.packed_qkv = (bits & 16) != 0;
      config.mlp = (bits & 32) != 0 ? MlpKind::kGated : MlpKind::kActivation;
      config.embedding_norm = (bits & 64) != 0;
      config.final_norm = (bits & 128) != 0;
      config.head_bias = (bits & 256) != 0;
      config.position_offset = (bits & 512) != 0 ? 2 : 0;
      const CausalLM model(config, backend, DType::kF32, 8);
      int64_t sum = 0;
      for (const Parameter* p : model.parameters()) sum += p->numel();
      CHECK(config.parameter_count() == sum);
    }
  }
}

// ---------------------------------------------------------------------------- Reading

TEST_CASE("config: folders that transformers wrote") {
  for (const char* name : {"gpt2", "gpt2_5heads", "llama_gqa_llama3", "llama_linear_tied",
                           "bloom_padded", "neox_parallel", "mistral_window4", "qwen2_tied"}) {
    CAPTURE(name);
    const auto folder = test::fixture_path("models") / name;
    const ModelConfig config = read_config(folder / "config.json");
    const Json reference = read_json_file(folder / "reference.json");
    CHECK(config.parameter_count() == reference["parameters"].get<int64_t>());
  }
  const auto models = test::fixture_path("models");
  const ModelConfig gpt2 = read_config(models / "gpt2_5heads" / "config.json");
  CHECK(gpt2.block_class == "GPT2Block");
  CHECK(gpt2.heads == 5);
  CHECK(gpt2.ffn != 4 * gpt2.hidden);
  CHECK(gpt2.tied_head);
  const ModelConfig llama = read_config(models / "llama_gqa_llama3" / "config.json");
  CHECK(llama.block_class == "LlamaDecoderLayer");
  CHECK(llama.head_dim == 16);
  CHECK(llama.kv_heads == 2);
  CHECK(llama.norm_epsilon == 1e-5);
  CHECK(llama.rope.scaling == RopeConfig::Scaling::kLlama3);
  CHECK(llama.rope.original_max_positions == 32);
  CHECK(llama.bos_token == 1);
  CHECK(llama.eos_token == 2);
  CHECK_FALSE(llama.tied_head);
  CHECK(read_config(models / "llama_linear_tied" / "config.json").tied_head);
}

TEST_CASE("config: gpt2 defaults and old spellings") {
  const TempFolder folder;
  const ModelConfig c = read(folder, kGpt2);
  CHECK(c.ffn == 96);
  CHECK(c.head_dim == 8);
  CHECK(c.activation == Activation::kGeluTanh);
  CHECK(c.residual_dropout == 0.1);
  CHECK(c.norm_epsilon == 1e-5);
  CHECK(c.bos_token == 50256);
  CHECK(read(folder, with(kGpt2, "bos_token_id", nullptr)).bos_token == -1);
  CHECK(c.positions == PositionKind::kLearned);
  Json modern = without(without(without(kGpt2, "n_embd"), "n_layer"), "n_head");
  modern =
      with(with(with(modern, "hidden_size", 24), "num_hidden_layers", 3), "num_attention_heads", 3);
  CHECK(read(folder, modern).hidden == 24);
  CHECK(read(folder, with(without(kGpt2, "n_positions"), "n_ctx", 48)).max_positions == 48);
  CHECK(read(folder, with(kGpt2, "n_inner", nullptr)).ffn == 96);
  CHECK(read(folder, with(kGpt2, "n_inner", 50)).ffn == 50);
  CHECK(read(folder, with(kGpt2, "activation_function", "gelu")).activation ==
        Activation::kGeluErf);
}

TEST_CASE("config: llama defaults, rope in old and new spellings, several end tokens") {
  const TempFolder folder;
  const ModelConfig c = read(folder, kLlama);
  CHECK(c.head_dim == 8);
  CHECK(c.norm_epsilon == 1e-6);
  CHECK(c.rope.theta == 1e4);
  CHECK_FALSE(c.qkv_bias);
  CHECK(read(folder, without(kLlama, "num_key_value_heads")).kv_heads == 4);
  CHECK(read(folder, with(kLlama, "head_dim", 6)).head_dim == 6);
  CHECK(read(folder, with(kLlama, "attention_bias", true)).attention_out_bias);
  const Json old_style = {{"type", "linear"}, {"factor", 4}};
  const ModelConfig linear = read(folder, with(kLlama, "rope_scaling", old_style));
  CHECK(linear.rope.scaling == RopeConfig::Scaling::kLinear);
  CHECK(linear.rope.factor == 4);
  const Json new_style = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  CHECK(read(folder, with(kLlama, "rope_parameters", new_style)).rope.theta == 1e6);
  CHECK(read_error(folder, with(with(kLlama, "rope_theta", 1e4), "rope_parameters", new_style)) ==
        "rope_theta: 10000 contradicts rope_parameters, which has 1e+06");
  CHECK(read(folder, with(kLlama, "rope_theta", 500000)).rope.theta == 5e5);
  CHECK(read(folder, with(kLlama, "rope_scaling", nullptr)).rope.scaling ==
        RopeConfig::Scaling::kNone);
  const Json tokens = {128001, 128008, 128009};  // Llama 3.1: stop at any of them
  CHECK(read(folder, with(kLlama, "eos_token_id", tokens)).eos_token == 128001);
}

TEST_CASE("config: keys of BLOOM and GPT-NeoX in old and new spellings") {
  const TempFolder folder;
  const Json old_bloom = {{"model_type", "bloom"},
                          {"vocab_size", 50},
                          {"n_embed", 12},
                          {"num_hidden_layers", 2},
                          {"num_attention_heads", 3}};
  const Json new_bloom = {{"model_type", "bloom"},
                          {"vocab_size", 50},
                          {"hidden_size", 12},
                          {"n_layer", 2},
                          {"n_head", 3}};
  for (const Json& json : {old_bloom, new_bloom}) {
    const ModelConfig c = read(folder, json);
    CHECK(c.hidden == 12);
    CHECK(c.layers == 2);
    CHECK(c.heads == 3);
    CHECK(c.ffn == 48);
    CHECK(c.tied_head);
  }
  const Json neox = {{"model_type", "gpt_neox"}, {"vocab_size", 50},
                     {"hidden_size", 32},        {"num_hidden_layers", 1},
                     {"num_attention_heads", 2}, {"intermediate_size", 64},
                     {"rotary_emb_base", 20000}, {"rotary_pct", 0.5}};
  CHECK(read(folder, neox).rope.theta == 2e4);
  CHECK(read(folder, neox).rope.fraction == 0.5);
  CHECK_FALSE(read(folder, neox).tied_head);
  // transformers 4.57 saves the common keys beside those of the family, which count.
  CHECK(read(folder, with(neox, "rope_theta", 3e4)).rope.theta == 2e4);
  CHECK(read(folder, with(neox, "partial_rotary_factor", 0.25)).rope.fraction == 0.5);
  CHECK(read_error(folder, with(without(neox, "rotary_emb_base"), "rope_theta", 3e4)) ==
        "rope_theta: transformers ignores it for GPT-NeoX: set rotary_emb_base");
  CHECK(read_error(folder, with(without(neox, "rotary_pct"), "partial_rotary_factor", 1)) ==
        "partial_rotary_factor: transformers ignores it for GPT-NeoX: set rotary_pct");
  CHECK(read(folder, with(without(neox, "rotary_emb_base"), "rope_theta", 1e4)).rope.theta == 1e4);
  const Json rope = {
      {"rope_type", "default"}, {"rope_theta", 4e4}, {"partial_rotary_factor", 0.25}};
  CHECK(read_error(folder, with(neox, "rope_parameters", rope)) ==
        "rotary_emb_base: 20000 contradicts rope_parameters, which has 40000");
  CHECK(read_error(folder, with(without(neox, "rotary_emb_base"), "rope_parameters", rope)) ==
        "rotary_pct: 0.5 contradicts rope_parameters, which has 0.25");
  const Json newer = without(without(neox, "rotary_pct"), "rotary_emb_base");
  CHECK(read(folder, with(newer, "rope_parameters", rope)).rope.theta == 4e4);
  CHECK(read(folder, with(newer, "rope_parameters", rope)).rope.fraction == 0.25);
  const Json bare = {{"rope_type", "default"}};
  const Json both = with(with(newer, "rope_parameters", rope), "rope_scaling", bare);
  CHECK(read(folder, both).rope.fraction == 0.25);
  CHECK(read(folder, with(neox, "rope_parameters", bare)).rope.theta == 2e4);
  CHECK(read(folder, with(neox, "rope_parameters", bare)).rope.fraction == 0.5);
  CHECK(read(folder, without(without(neox, "rotary_pct"), "rotary_emb_base")).rope.fraction ==
        0.25);
  CHECK(read(folder, with(neox, "hidden_act", "gelu_fast")).activation == Activation::kGeluFast);
  CHECK_FALSE(read(folder, with(neox, "attention_bias", false)).attention_out_bias);
}

TEST_CASE("config: of two spellings that differ, transformers' counts or none") {
  const TempFolder folder;
  CHECK(read(folder, with(kGpt2, "num_hidden_layers", 3)).layers == 3);
  CHECK(read(folder, with(kGpt2, "n_ctx", 64)).max_positions == 32);
  CHECK(read(folder, with(without(kGpt2, "n_positions"), "n_ctx", 64)).max_positions == 64);
  const Json modern = with(without(kGpt2, "n_positions"), "max_position_embeddings", 48);
  CHECK(read(folder, with(modern, "n_ctx", 64)).max_positions == 48);
  const Json bloom = {{"model_type", "bloom"}, {"vocab_size", 50}, {"hidden_size", 24},
                      {"n_embed", 12},         {"n_layer", 2},     {"n_head", 3}};
  CHECK(read(folder, bloom).hidden == 12);

  const Json linear = {{"rope_type", "linear"}, {"factor", 2}};
  const Json both = with(with(kLlama, "rope_parameters", linear), "rope_theta", 2e4);
  CHECK(read(folder, with(both, "rope_scaling", linear)).rope.factor == 2);
  for (const Json& other : {Json{{"rope_type", "linear"}, {"factor", 4}},
                            Json{{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 1e4}},
                            Json{{"rope_type", "default"}}}) {
    CHECK(read_error(folder, with(both, "rope_scaling", other)) ==
          "rope_scaling: says something else than rope_parameters");
  }
  // Only rope_parameters has the theta: rope_scaling does not contradict it by leaving it out.
  const Json with_theta = with(linear, "rope_theta", 5e5);
  const Json inner = with(with(kLlama, "rope_parameters", with_theta), "rope_scaling", linear);
  CHECK(read(folder, inner).rope.theta == 5e5);
  CHECK(read(folder, inner).rope.factor == 2);
  const Json unscaled = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  CHECK(read_error(folder, with(inner, "rope_parameters", unscaled)) ==
        "rope_scaling: says something else than rope_parameters");
  CHECK(read(folder, with(kLlama, "rope_scaling", with(linear, "type", "linear"))).rope.factor ==
        2);
}

TEST_CASE("config: windows of Mistral and Qwen2, keys that are null or not there") {
  const TempFolder folder;
  const Json mistral = with(with(kLlama, "model_type", "mistral"), "sliding_window", 5);
  CHECK(read(folder, mistral).window == 5);
  CHECK(read(folder, with(mistral, "sliding_window", nullptr)).window == 0);
  CHECK(read(folder, without(mistral, "sliding_window")).window == 4096);  // the class's default
  CHECK(read(folder, with(mistral, "num_key_value_heads", nullptr)).kv_heads == 4);
  CHECK(read_error(folder, without(mistral, "num_key_value_heads")) ==
        "model config: kv_heads: expected a divisor of 4 heads, got 8");
  CHECK(read(folder, with(mistral, "head_dim", nullptr)).head_dim == 8);
  const Json sliding = {"sliding_attention", "sliding_attention"};
  CHECK(read(folder, with(mistral, "layer_types", sliding)).window == 5);
  CHECK(read_error(folder, with(mistral, "layer_types", {"sliding_attention", "full_attention"})) ==
        "layer_types: expected sliding_attention in every layer, got full_attention");

  const Json qwen = with(with(kLlama, "model_type", "qwen2"), "sliding_window", 6);
  CHECK(read(folder, qwen).window == 0);
  CHECK(read(folder, qwen).qkv_bias);
  CHECK_FALSE(read(folder, qwen).attention_out_bias);
  CHECK_FALSE(read(folder, qwen).tied_head);
  const Json on = with(qwen, "use_sliding_window", true);
  CHECK(read(folder, with(on, "max_window_layers", 2)).window == 0);  // of two layers
  CHECK(read(folder, with(on, "max_window_layers", 0)).window == 6);
  const Json all = with(on, "max_window_layers", 0);
  CHECK(read(folder, with(all, "sliding_window", nullptr)).window == 0);
  CHECK(read(folder, without(all, "sliding_window")).window == 4096);  // the class's default
  CHECK(read_error(folder, with(on, "max_window_layers", 1)) ==
        "use_sliding_window: true in some of the layers is not supported by this build");
  const Json some = with(on, "max_window_layers", 1);
  CHECK(read(folder, with(some, "sliding_window", nullptr)).window == 0);  // of all layers
}

TEST_CASE("config: either spelling of the dtype, and keys that say nothing here, are passed over") {
  const TempFolder folder;
  for (const char* key : {"dtype", "torch_dtype", "transformers_version", "pretraining_tp"}) {
    CHECK(read(folder, with(kLlama, key, "float16")).hidden == 32);
  }
}

// ---------------------------------------------------------------------------- Errors

TEST_CASE("config: what is refused, each case a change of a small model's file") {
  const TempFolder folder;
  test::check_refused("config_json_refused.json", [&](const Json& each) {
    Json json = each["base"] == "gpt2" ? kGpt2 : kLlama;
    if (each.contains("with")) json.update(each["with"]);
    for (const Json& key : each.contains("without") ? each["without"] : Json::array()) {
      json.erase(key.text());
    }
    return read_error(folder, json);
  });
}

TEST_CASE("config: missing and malformed keys are named with their file") {
  const TempFolder folder;
  CHECK(read_error(folder, with(kGpt2, "n_layer", int64_t{1} << 31)) ==
        "n_layer: expected an integer of at most 32 bits, got 2147483648");
  CHECK(read_error(folder, with(kGpt2, "n_layer", UINT64_MAX)) ==
        "n_layer: expected an integer of at most 32 bits, got 18446744073709551615");
  CHECK(read_error(folder, with(kGpt2, "layer_norm_epsilon", -1e-5)) ==
        "layer_norm_epsilon: expected at least 0, got -1e-05");
  CHECK(read_error(folder, Json::array()) == "expected a JSON object");
  CHECK(contains(error_of([&] { read_config(folder / "absent.json"); }), "absent.json"));
  folder.write("cut.json", "{\"model_type\": ");
  CHECK(contains(error_of([&] { read_config(folder / "cut.json"); }), "cut.json:1: "));
}

std::string no_t5() {
  std::vector<std::string_view> names;
  for (const Family* family : families()) names.push_back(family->name);
  return fmt::format("model family: expected one of {}, got \"t5\"", fmt::join(names, ", "));
}

TEST_CASE("config: what this build cannot do is refused") {
  const TempFolder folder;
  CHECK(read_error(folder, with(kGpt2, "model_type", "t5")) == no_t5());
  for (const char* learned : {"prelu", "xielu"}) {
    const std::string error = read_error(folder, with(kGpt2, "activation_function", learned));
    CHECK(error.starts_with("activation_function: expected one of gelu_new, gelu_pytorch_tanh, "));
    CHECK(error.ends_with(fmt::format("got '{}'", learned)));
  }
  for (const char* type : {"dynamic", "yarn", "longrope", "su", "mrope"}) {  // before their keys
    CHECK(read_error(folder, with(kLlama, "rope_parameters", {{"rope_type", type}})) ==
          fmt::format("rope_parameters: rope_type: expected default, linear or llama3, got '{}'",
                      type));
  }
  CHECK(error_of([] { family_defaults("t5"); }) == no_t5());
}

TEST_CASE("config: extents that do not fit each other are refused") {
  const TempFolder folder;
  CHECK(read(folder, with(kGpt2, "n_layer", 10'000)).layers == 10'000);
  Json huge = with(with(kLlama, "hidden_size", INT32_MAX), "intermediate_size", INT32_MAX);
  huge = with(huge, "head_dim", 8);
  CHECK(contains(read_error(folder, huge), "model config: expected fewer than 2^62 parameters"));
  const Json neox = with(with(kLlama, "model_type", "gpt_neox"), "rotary_pct", 1e300);
  CHECK(read_error(folder, neox) ==
        "model config: rotary fraction: expected within (0, 1], got 1e+300");
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8},
                       {"low_freq_factor", 1},
                       {"high_freq_factor", 4},
                       {"original_max_position_embeddings", 1e-320}};  // found by the fuzzer
  CHECK(contains(read_error(folder, with(kLlama, "rope_scaling", llama3)),
                 "rope_scaling: original_max_position_embeddings: expected "));
  cpu::CpuBackend backend;
  CHECK(error_of([&] { CausalLM(test::tiny_gpt2(), backend, DType::kF32, 17); }) ==
        "[model] sequence length: expected at most the model's 16 positions, got 17");
}

// ---------------------------------------------------------------------------- Writing

TEST_CASE("config: what config_json writes reads back the same") {
  const TempFolder folder;
  std::vector<ModelConfig> configs = {test::tiny_gpt2(), test::tiny_llama()};
  for (const std::string& name : preset_names()) configs.push_back(preset(name));
  configs[0].activation = Activation::kGeluErf;
  configs[0].attention_dropout = 0.25;
  configs[0].tied_head = false;
  configs[1].rope = {.theta = 5e5,
                     .scaling = RopeConfig::Scaling::kLlama3,
                     .factor = 8,
                     .low_frequency_factor = 1,
                     .high_frequency_factor = 4,
                     .original_max_positions = 8192};
  configs[1].tied_head = configs[1].qkv_bias = configs[1].attention_out_bias = true;
  configs[1].eos_token = 2;
  for (const ModelConfig& config : configs) {
    const std::string text = config_json(config, "bfloat16");
    const ModelConfig again = read_config(folder.write("config.json", text));
    CHECK(config_json(again, "bfloat16") == text);
    CHECK(again.parameter_count() == config.parameter_count());
    CHECK(again.family == config.family);
    CHECK(again.packed_qkv == config.packed_qkv);
    CHECK(again.window == config.window);
    CHECK(again.tied_head == config.tied_head);
    CHECK(again.activation == config.activation);
    CHECK(again.rope.fraction == config.rope.fraction);
    CHECK(again.rope.scaling == config.rope.scaling);
    CHECK(again.max_positions == config.max_positions);
    CHECK(again.scaled_residual_init == config.scaled_residual_init);
    CHECK(again.rope.theta == (config.positions == PositionKind::kRope ? config.rope.theta : 1e4));
    CHECK(parse_json(text, "text")["torch_dtype"] == "bfloat16");
  }
}

TEST_CASE("config: a model from a folder keeps every key of its config.json") {
  const TempFolder folder;
  for (const char* name : {"gpt2", "bloom_padded", "neox_parallel", "llama_gqa_llama3",
                           "mistral_window4", "qwen2_tied"}) {
    CAPTURE(name);
    const auto path = test::fixture_path("models") / name / "config.json";
    const ModelConfig config = read_config(path);
    CHECK(updated_config_json(config, "", path) == read_file(path));
    CHECK(updated_config_json(config, "float32", path) == read_file(path));
    ModelConfig changed = config;
    changed.attention_dropout = 0.25;
    changed.max_positions = config.positions == PositionKind::kAlibi ? 100 : config.max_positions;
    Json expected = read_json_file(path);
    expected[config.family == "gpt2" ? "attn_pdrop" : "attention_dropout"] = 0.25;
    if (config.positions == PositionKind::kAlibi) expected["seq_length"] = 100;  // it had none
    expected["dtype"] = "bfloat16";
    const Json got = parse_json(updated_config_json(changed, "bfloat16", path), "text");
    CHECK(got == expected);
  }
}

TEST_CASE("config: old spellings stay, the dtype has the key it had, the class is what is saved") {
  const TempFolder folder;
  Json old = with(with(kLlama, "torch_dtype", "float16"), "_name_or_path", "somewhere");
  old["architectures"] = {"LlamaModel"};
  old["eos_token_id"] = {5, 6};
  const std::string path = folder.write("config.json", old.dump());
  const ModelConfig config = read_config(path);
  const Json got = parse_json(updated_config_json(config, "float32", path), "text");
  Json expected = old;
  expected["architectures"] = {"LlamaForCausalLM"};
  expected["torch_dtype"] = expected["dtype"] = "float32";
  CHECK(got == expected);
  const std::string gpt2_path = folder.write("gpt2.json", kGpt2.dump());
  ModelConfig wider = read_config(gpt2_path);
  wider.hidden = 48;  // without n_inner the file says an inner width of 4 times it
  CHECK(error_of([&] { updated_config_json(wider, "", gpt2_path); }) ==
        gpt2_path + ": its keys cannot say what the model has become");
}

// ACT2FN[None], `x + None`, nn.Dropout(None) and std=-1 end transformers too; bool(None) is False.
TEST_CASE("config: values that transformers would not compute with, and models of another head") {
  const auto error = [](const char* key, const Json& value) {
    const Json json = {{"model_type", "llama"}, {key, value}};
    return error_of([&] { parse_config(json.dump(), "c.json"); });
  };
  CHECK(error("hidden_act", nullptr) ==
        "c.json: hidden_act: expected the name of an activation, got null");
  CHECK(error("rms_norm_eps", nullptr) == "c.json: rms_norm_eps: expected a number, got null");
  CHECK(error("attention_dropout", nullptr) ==
        "c.json: attention_dropout: expected a number, got null");
  CHECK(error("initializer_range", -0.02) ==
        "c.json: initializer_range: expected at least 0, got -0.02");
  for (const char* key : {"dtype", "torch_dtype"}) {
    CHECK(error(key, "int8") ==
          std::string("c.json: ") + key +
              ": expected float32, bfloat16, float16, float64, auto, got int8");
    for (const Json& good : {Json("bfloat16"), Json("auto"), Json()}) CHECK(error(key, good) == "");
  }
  CHECK(error("architectures", Json::array({"LlamaForSequenceClassification"})) ==
        "c.json: architectures: expected LlamaForCausalLM, which predicts tokens, got "
        "LlamaForSequenceClassification: it has another head");
  CHECK(contains(error("architectures", Json::array({"GPT2DoubleHeadsModel"})),
                 "it has another head"));
  for (const char* good : {"LlamaForCausalLM", "LlamaModel", "LLaMAForCausalLM"}) {
    CHECK(error("architectures", Json::array({good})) == "");
  }
  CHECK(error("architectures", nullptr) == "");
  const Json untied = {{"model_type", "gpt2"}, {"tie_word_embeddings", nullptr}};
  CHECK(!parse_config(untied.dump(), "c.json").tied_head);
}

}  // namespace
}  // namespace fsdp::models
