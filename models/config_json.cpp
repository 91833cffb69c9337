// Hugging Face config.json: the keys that every family has. Those of one family: models/families.
#include <algorithm>
#include <array>
#include <string_view>

#include "core/io/file.h"
#include "core/io/patience.h"
#include "models/family.h"
#include "models/ignored_keys.h"

namespace fsdp::models {

ModelConfig read_config(const std::string& path) { return parse_config(read_file(path), path); }

namespace {

// Keys that make the model something else in every family.
void refuse_other_models(const ConfigKeys& keys) {
  const auto refuse = [&](const char* key) {
    keys.refuse_unless(!keys.get_or<bool>(key, false), key, "true");
  };
  refuse("is_encoder_decoder");
  refuse("add_cross_attention");
  refuse("torchscript");  // makes copies of tied weights
  keys.refuse_unless(!keys.has("quantization_config"), "quantization_config",
                     "a model of quantized weights");
  keys.refuse_unless(!keys.has("pruned_heads") || keys.object("pruned_heads").unasked().empty(),
                     "pruned_heads", "a model without some of its heads");
}

// Another head than that which predicts tokens has its own outputs. Names of a class without a
// head, or with this one, differ over the years.
void refuse_other_heads(const ConfigKeys& keys, const ModelConfig& config) {
  for (const std::string& name : keys.strings("architectures")) {
    const bool predicts_tokens = name == config.model_class || name.ends_with("ForCausalLM") ||
                                 name.ends_with("LMHeadModel") ||
                                 (name.ends_with("Model") && !name.ends_with("DoubleHeadsModel"));
    FSDP_CHECK(predicts_tokens,
               "{}: architectures: expected {}, which predicts tokens, got {}: it has another head",
               keys.where(), config.model_class, name);
  }
}

// Weights of whole numbers would need a quantization_config, which is refused.
void refuse_other_dtypes(const ConfigKeys& keys) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    const std::string name = keys.get_or<std::string>(key, "");
    if (name.empty()) continue;
    constexpr std::array<std::string_view, 5> kKnown = {"float32", "bfloat16", "float16", "float64",
                                                        "auto"};
    FSDP_CHECK(std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end(),
               "{}: {}: expected {}, got {}", keys.where(), key, fmt::join(kKnown, ", "), name);
  }
}

double read_initializer_range(const ConfigKeys& keys) {
  const double range = keys.get_or<double>("initializer_range", 0.02);
  FSDP_CHECK(range >= 0, "{}: initializer_range: expected at least 0, got {:g}", keys.where(),
             range);
  return range;
}

ModelConfig read_keys(const ConfigKeys& keys) {
  const std::string& path = keys.where();
  const std::string name = keys.get<std::string>("model_type");
  try {
    const Family& family = family_of(name);
    ModelConfig config = family_defaults(name);
    config.initializer_range = read_initializer_range(keys);
    config.tied_head = keys.get_or<bool>("tie_word_embeddings", config.tied_head);
    const Json& data = data_of(family);
    config.bos_token = keys.token("bos_token_id", data.value("absent_bos", int64_t{-1}));
    config.eos_token = keys.token("eos_token_id", data.value("absent_eos", int64_t{-1}));
    refuse_other_models(keys);
    refuse_other_heads(keys, config);
    refuse_other_dtypes(keys);
    family.read(keys, config);
    validate(config);
    return config;
  } catch (const Error& error) {
    const std::string what = error.what();
    fail_like(error, what.starts_with(path) ? what : path + ": " + what);
  }
}

}  // namespace

ModelConfig parse_config(const std::string& text, const std::string& path) {
  const Json json = parse_json(text, path);
  return read_keys(ConfigKeys(json, path));
}

std::vector<std::string> unknown_config_keys(const std::string& path) {
  const Json json = read_json_file(path);
  const ConfigKeys keys(json, path);
  const Family& family = family_of(read_keys(keys).family);
  std::vector<std::string> unknown = keys.unasked();
  std::erase_if(unknown, [&](const std::string& key) {
    return is_ignored_in_config(family, key) || is_ignored_in_generation(key);
  });
  return unknown;
}

std::vector<std::string> unknown_generation_keys(const std::string& path) {
  const Json json = read_json_file(path);
  const ConfigKeys keys(json, path);
  keys.has("eos_token_id");
  std::vector<std::string> unknown = keys.unasked();
  std::erase_if(unknown, is_ignored_in_generation);
  return unknown;
}

std::string torch_name(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "float64";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    default:
      return "float32";
  }
}

namespace {

// Everything but the dtype.
Json keys_of(const ModelConfig& config) {
  const auto token = [](int64_t id) { return id < 0 ? Json(nullptr) : Json(id); };
  Json json = {{"architectures", {config.model_class}}, {"model_type", config.family}};
  json.update(family_of(config.family).write(config));
  json["initializer_range"] = config.initializer_range;
  json["tie_word_embeddings"] = config.tied_head;
  json["bos_token_id"] = token(config.bos_token);
  json["eos_token_id"] = token(config.eos_token);
  return json;
}

constexpr const char* kDtypeKeys[] = {"dtype", "torch_dtype"};  // now; before transformers 4.56

}  // namespace

std::string config_json(const ModelConfig& config, const std::string& dtype) {
  Json json = keys_of(config);
  for (const char* key : kDtypeKeys) json[key] = dtype;
  return json.dump({.indent = 2}) + "\n";
}

std::string updated_config_json(const ModelConfig& config, const std::string& dtype,
                                const std::string& source) {
  const std::string text = read_file(source);
  const ModelConfig before = parse_config(text, source);
  const Json original = Json::parse(text);
  Json json = original;
  const Json old_keys = keys_of(before), new_keys = keys_of(config);
  for (const auto& [key, value] : new_keys.items()) {
    if (!old_keys.contains(key) || old_keys[key] != value) json[key] = value;
  }
  json["architectures"] = new_keys["architectures"];
  for (const char* key : kDtypeKeys) {
    if (!dtype.empty() && (json.contains(key) || key == kDtypeKeys[0])) json[key] = dtype;
  }
  if (json == original) return text;
  const std::string out = json.dump({.indent = 2}) + "\n";
  FSDP_CHECK(keys_of(parse_config(out, source)) == new_keys,
             "{}: its keys cannot say what the model has become", source);
  return out;
}

}  // namespace fsdp::models
