// Hugging Face config.json: reading (old and new spellings of keys) and writing.
#include <filesystem>

#include "core/io/json.h"
#include "models/config.h"

namespace fsdp::models {
namespace {

// A JSON object with errors that name the file and the key.
class Keys {
 public:
  Keys(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    FSDP_CHECK(object_.is_object(), "{}: expected a JSON object", where_);
  }

  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }

  template <typename T>
  T get(const char* key) const {
    FSDP_CHECK(has(key), "{}: {}: missing", where_, key);
    return convert<T>(key);
  }
  template <typename T>
  T get_or(const char* key, T otherwise) const {
    return has(key) ? convert<T>(key) : otherwise;
  }
  // The first of two spellings that is there; when none is, the first is what is missing.
  int64_t either(const char* key, const char* other_key) const {
    return get<int64_t>(!has(key) && has(other_key) ? other_key : key);
  }
  // A token id; of a list (newer files have several end tokens) the first. -1: none.
  int64_t token(const char* key) const {
    if (!has(key)) return -1;
    const Json& value = object_.at(key);
    const Json& first = value.is_array() && !value.empty() ? value[0] : value;
    FSDP_CHECK(first.is_number_integer(), "{}: {}: expected an integer or a list of them, got {}",
               where_, key, value.dump());
    return first.get<int64_t>();
  }
  Keys object(const char* key) const { return Keys(object_.at(key), where_ + ": " + key); }
  const std::string& where() const { return where_; }

 private:
  // Strict: the library would turn 2.5 and true into integers.
  template <typename T>
  T convert(const char* key) const {
    const Json& value = object_.at(key);
    const bool fits = std::is_same_v<T, bool>      ? value.is_boolean()
                      : std::is_same_v<T, int64_t> ? value.is_number_integer()
                      : std::is_same_v<T, double>  ? value.is_number()
                                                   : value.is_string();
    FSDP_CHECK(fits, "{}: {}: expected {}, got {}", where_, key, type_name<T>(), value.dump());
    return value.get<T>();
  }
  template <typename T>
  static const char* type_name() {
    if (std::is_same_v<T, bool>) return "true or false";
    if (std::is_same_v<T, int64_t>) return "an integer";
    return std::is_same_v<T, double> ? "a number" : "a string";
  }

  const Json& object_;
  std::string where_;
};

void refuse_unless(const Keys& keys, bool supported, const char* key, const char* meaning) {
  FSDP_CHECK(supported, "{}: {}: {} is not supported by this build", keys.where(), key, meaning);
}

void read_tokens(const Keys& keys, ModelConfig& config) {
  config.bos_token = keys.token("bos_token_id");
  config.eos_token = keys.token("eos_token_id");
}

Activation parse_activation(const Keys& keys, const char* key, const std::string& otherwise) {
  const std::string name = keys.get_or<std::string>(key, otherwise);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name == "gelu") return Activation::kGeluErf;
  fail("{}: {}: expected gelu_new, gelu_pytorch_tanh or gelu, got '{}'", keys.where(), key, name);
}

ModelConfig read_gpt2(const Keys& keys) {
  ModelConfig c = family_defaults("gpt2");
  c.vocabulary = keys.get<int64_t>("vocab_size");
  c.hidden = keys.either("n_embd", "hidden_size");
  c.layers = keys.either("n_layer", "num_hidden_layers");
  c.heads = c.kv_heads = keys.either("n_head", "num_attention_heads");
  FSDP_CHECK(c.heads > 0 && c.hidden % c.heads == 0,
             "{}: n_head: expected a divisor of n_embd {}, got {}", keys.where(), c.hidden,
             c.heads);
  c.head_dim = c.hidden / c.heads;
  c.ffn = keys.get_or<int64_t>("n_inner", 4 * c.hidden);
  c.max_positions = keys.either("n_positions", "n_ctx");
  c.activation = parse_activation(keys, "activation_function", "gelu_new");
  c.norm_epsilon = keys.get_or<double>("layer_norm_epsilon", 1e-5);
  c.embedding_dropout = keys.get_or<double>("embd_pdrop", 0.1);
  c.attention_dropout = keys.get_or<double>("attn_pdrop", 0.1);
  c.residual_dropout = keys.get_or<double>("resid_pdrop", 0.1);
  c.initializer_range = keys.get_or<double>("initializer_range", 0.02);
  c.tied_head = keys.get_or<bool>("tie_word_embeddings", true);
  refuse_unless(keys, keys.get_or<bool>("scale_attn_weights", true), "scale_attn_weights", "false");
  refuse_unless(keys, !keys.get_or<bool>("scale_attn_by_inverse_layer_idx", false),
                "scale_attn_by_inverse_layer_idx", "true");
  read_tokens(keys, c);
  return c;
}

// Newer files keep everything in `rope_parameters`, older ones in `rope_theta` and `rope_scaling`.
RopeConfig read_rope(const Keys& keys) {
  RopeConfig rope;
  const bool new_style = keys.has("rope_parameters");
  const char* key = new_style ? "rope_parameters" : "rope_scaling";
  rope.theta = keys.get_or<double>("rope_theta", 10000);
  if (!keys.has(key)) return rope;
  const Keys scaling = keys.object(key);
  rope.theta = scaling.get_or<double>("rope_theta", rope.theta);
  const std::string type =
      scaling.get_or<std::string>("rope_type", scaling.get_or<std::string>("type", "default"));
  if (type == "default") return rope;
  rope.factor = scaling.get<double>("factor");
  if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
    return rope;
  }
  FSDP_CHECK(type == "llama3", "{}: rope_type: expected default, linear or llama3, got '{}'",
             scaling.where(), type);
  rope.scaling = RopeConfig::Scaling::kLlama3;
  rope.low_frequency_factor = scaling.get<double>("low_freq_factor");
  rope.high_frequency_factor = scaling.get<double>("high_freq_factor");
  rope.original_max_positions = scaling.get<double>("original_max_position_embeddings");
  return rope;
}

ModelConfig read_llama(const Keys& keys) {
  ModelConfig c = family_defaults("llama");
  c.vocabulary = keys.get<int64_t>("vocab_size");
  c.hidden = keys.get<int64_t>("hidden_size");
  c.layers = keys.get<int64_t>("num_hidden_layers");
  c.heads = keys.get<int64_t>("num_attention_heads");
  c.kv_heads = keys.get_or<int64_t>("num_key_value_heads", c.heads);
  FSDP_CHECK(c.heads > 0, "{}: num_attention_heads: expected a positive number, got {}",
             keys.where(), c.heads);
  c.head_dim = keys.get_or<int64_t>("head_dim", c.hidden / c.heads);
  c.ffn = keys.get<int64_t>("intermediate_size");
  c.max_positions = keys.get_or<int64_t>("max_position_embeddings", 2048);
  c.norm_epsilon = keys.get_or<double>("rms_norm_eps", 1e-6);
  c.attention_dropout = keys.get_or<double>("attention_dropout", 0);
  c.initializer_range = keys.get_or<double>("initializer_range", 0.02);
  c.tied_head = keys.get_or<bool>("tie_word_embeddings", false);
  c.qkv_bias = c.attention_out_bias = keys.get_or<bool>("attention_bias", false);
  c.mlp_bias = keys.get_or<bool>("mlp_bias", false);
  refuse_unless(keys, keys.get_or<std::string>("hidden_act", "silu") == "silu", "hidden_act",
                "anything but silu");
  c.rope = read_rope(keys);
  read_tokens(keys, c);
  return c;
}

OrderedJson rope_scaling_json(const RopeConfig& rope) {
  using Scaling = RopeConfig::Scaling;
  if (rope.scaling == Scaling::kNone) return nullptr;
  OrderedJson json = {{"rope_type", rope.scaling == Scaling::kLinear ? "linear" : "llama3"},
                      {"factor", rope.factor}};
  if (rope.scaling == Scaling::kLlama3) {
    json["low_freq_factor"] = rope.low_frequency_factor;
    json["high_freq_factor"] = rope.high_frequency_factor;
    json["original_max_position_embeddings"] = static_cast<int64_t>(rope.original_max_positions);
  }
  return json;
}

OrderedJson token_json(int64_t token) {
  return token < 0 ? OrderedJson(nullptr) : OrderedJson(token);
}

OrderedJson gpt2_json(const ModelConfig& c) {
  return {{"architectures", {c.model_class}},
          {"model_type", "gpt2"},
          {"vocab_size", c.vocabulary},
          {"n_positions", c.max_positions},
          {"n_embd", c.hidden},
          {"n_layer", c.layers},
          {"n_head", c.heads},
          {"n_inner", c.ffn},
          {"activation_function", c.activation == Activation::kGeluErf ? "gelu" : "gelu_new"},
          {"layer_norm_epsilon", c.norm_epsilon},
          {"embd_pdrop", c.embedding_dropout},
          {"attn_pdrop", c.attention_dropout},
          {"resid_pdrop", c.residual_dropout}};
}

OrderedJson llama_json(const ModelConfig& c) {
  return {{"architectures", {c.model_class}},
          {"model_type", "llama"},
          {"vocab_size", c.vocabulary},
          {"hidden_size", c.hidden},
          {"intermediate_size", c.ffn},
          {"num_hidden_layers", c.layers},
          {"num_attention_heads", c.heads},
          {"num_key_value_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"max_position_embeddings", c.max_positions},
          {"hidden_act", "silu"},
          {"rms_norm_eps", c.norm_epsilon},
          {"attention_bias", c.qkv_bias},
          {"attention_dropout", c.attention_dropout},
          {"mlp_bias", c.mlp_bias},
          {"rope_theta", c.rope.theta},
          {"rope_scaling", rope_scaling_json(c.rope)}};
}

}  // namespace

ModelConfig read_config(const std::string& path) {
  const Json json = read_json_file(path);
  const Keys keys(json, path);
  const std::string family = keys.get<std::string>("model_type");
  ModelConfig config;
  if (family == "gpt2") {
    config = read_gpt2(keys);
  } else if (family == "llama") {
    config = read_llama(keys);
  } else {
    fail("{}: model_type: this build knows gpt2 and llama, got '{}'", path, family);
  }
  try {
    validate(config);
  } catch (const Error& error) {
    fail("{}: {}", path, error.what());
  }
  return config;
}

std::string config_json(const ModelConfig& config, const std::string& dtype) {
  OrderedJson json = config.family == "gpt2" ? gpt2_json(config) : llama_json(config);
  json["initializer_range"] = config.initializer_range;
  json["tie_word_embeddings"] = config.tied_head;
  json["bos_token_id"] = token_json(config.bos_token);
  json["eos_token_id"] = token_json(config.eos_token);
  json["dtype"] = dtype;
  json["torch_dtype"] = dtype;  // transformers before 4.56
  return json.dump(2) + "\n";
}

}  // namespace fsdp::models
