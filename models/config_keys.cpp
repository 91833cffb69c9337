// Keys that several families share.
#include "models/config_keys.h"

namespace fsdp::models {

int64_t ConfigKeys::token(const char* key) const {
  if (!has(key)) return -1;
  const Json& value = object_.at(key);
  const Json& first = value.is_array() && !value.empty() ? value[0] : value;
  FSDP_CHECK(first.is_number_integer(), "{}: {}: expected an integer or a list of them, got {}",
             where_, key, value.dump());
  return first.get<int64_t>();
}

void ConfigKeys::refuse_unless(bool supported, const char* key, const char* meaning) const {
  FSDP_CHECK(supported, "{}: {}: {} is not supported by this build", where_, key, meaning);
}

Activation read_activation(const ConfigKeys& keys, const char* key, const std::string& otherwise) {
  const std::string name = keys.get_or<std::string>(key, otherwise);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name == "gelu") return Activation::kGeluErf;
  fail("{}: {}: expected gelu_new, gelu_pytorch_tanh or gelu, got '{}'", keys.where(), key, name);
}

const char* activation_name(Activation activation) {
  return activation == Activation::kGeluErf ? "gelu" : "gelu_new";
}

int64_t read_head_dim(const ConfigKeys& keys, const ModelConfig& c, const char* heads_key) {
  FSDP_CHECK(c.heads > 0, "{}: {}: expected a positive number, got {}", keys.where(), heads_key,
             c.heads);
  if (keys.has("head_dim")) return keys.get<int64_t>("head_dim");
  FSDP_CHECK(c.hidden % c.heads == 0, "{}: {}: expected a divisor of {}, got {}", keys.where(),
             heads_key, c.hidden, c.heads);
  return c.hidden / c.heads;
}

RopeConfig read_rope(const ConfigKeys& keys) {
  RopeConfig rope;
  const bool new_style = keys.has("rope_parameters");
  const char* key = new_style ? "rope_parameters" : "rope_scaling";
  rope.theta = keys.get_or<double>("rope_theta", 10000);
  if (!keys.has(key)) return rope;
  const ConfigKeys scaling = keys.object(key);
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

}  // namespace fsdp::models
