// Contract: models/family_keys.h.
#include "models/family_keys.h"

#include <array>
#include <string_view>
#include <vector>

namespace fsdp::models {
namespace {

struct NamedActivation {
  std::string_view name;  // the first of an activation is the one that is written
  Activation activation;
};
constexpr std::array kActivations = {
    NamedActivation{"gelu_new", Activation::kGeluTanh},
    NamedActivation{"gelu_pytorch_tanh", Activation::kGeluTanh},
    NamedActivation{"gelu_python_tanh", Activation::kGeluTanh},
    NamedActivation{"gelu_accurate", Activation::kGeluTanh},
    NamedActivation{"gelu_fast", Activation::kGeluFast},
    NamedActivation{"gelu", Activation::kGeluErf},
    NamedActivation{"gelu_python", Activation::kGeluErf},
    NamedActivation{"gelu_10", Activation::kGeluClipped},
    NamedActivation{"quick_gelu", Activation::kQuickGelu},
    NamedActivation{"silu", Activation::kSilu},
    NamedActivation{"swish", Activation::kSilu},
    NamedActivation{"relu", Activation::kRelu},
    NamedActivation{"relu2", Activation::kReluSquared},
    NamedActivation{"relu6", Activation::kRelu6},
    NamedActivation{"leaky_relu", Activation::kLeakyRelu},
    NamedActivation{"tanh", Activation::kTanh},
    NamedActivation{"sigmoid", Activation::kSigmoid},
    NamedActivation{"mish", Activation::kMish},
    NamedActivation{"laplace", Activation::kLaplace},
    NamedActivation{"linear", Activation::kNone},
};

}  // namespace

Activation activation_named(const std::string& name) {
  std::vector<std::string_view> known;
  for (const NamedActivation& named : kActivations) {
    if (named.name == name) return named.activation;
    known.push_back(named.name);
  }
  fail("expected one of {}, got '{}'", fmt::join(known, ", "), name);
}

Activation read_activation(const ConfigKeys& keys, const char* key, const std::string& otherwise) {
  FSDP_CHECK(keys.absent(key) || keys.has(key),
             "{}: {}: expected the name of an activation, got null", keys.where(), key);
  const std::string name = keys.get_or<std::string>(key, otherwise);
  try {
    return activation_named(name);
  } catch (const Error& error) {
    fail("{}: {}: {}", keys.where(), key, error.what());
  }
}

const char* activation_name(Activation activation) {
  for (const NamedActivation& named : kActivations) {
    if (named.activation == activation) return named.name.data();
  }
  return "BLOOM's gelu";  // no choice of a file
}

namespace {

int64_t quotient(const ConfigKeys& keys, const ModelConfig& c, const char* heads_key) {
  FSDP_CHECK(c.hidden % c.heads == 0, "{}: {}: expected a divisor of {}, got {}", keys.where(),
             heads_key, c.hidden, c.heads);
  return c.hidden / c.heads;
}

void check_heads(const ConfigKeys& keys, const ModelConfig& c, const char* heads_key) {
  FSDP_CHECK(c.heads > 0, "{}: {}: expected a positive number, got {}", keys.where(), heads_key,
             c.heads);
}

}  // namespace

int64_t read_head_dim(const ConfigKeys& keys, const ModelConfig& c, const char* heads_key) {
  check_heads(keys, c, heads_key);
  return keys.has("head_dim") ? keys.get<int64_t>("head_dim") : quotient(keys, c, heads_key);
}

int64_t divided_head_dim(const ConfigKeys& keys, const ModelConfig& c, const char* heads_key) {
  check_heads(keys, c, heads_key);
  const int64_t divided = quotient(keys, c, heads_key);
  const int64_t own = keys.get_or<int64_t>("head_dim", divided);
  FSDP_CHECK(own == divided, "{}: head_dim: expected {} / {} = {}, as this family has it, got {}",
             keys.where(), c.hidden, c.heads, divided, own);
  return divided;
}

namespace {

// A frequency may neither vanish nor overflow.
double positive(const ConfigKeys& keys, const char* key, double value) {
  constexpr double kMost = 1e15;
  FSDP_CHECK(value > 0 && value <= kMost, "{}: {}: expected within (0, {:g}], got {:g}",
             keys.where(), key, kMost, value);
  return value;
}

void read_scaling(const ConfigKeys& keys, const std::string& type, RopeConfig& rope) {
  if (type == "default") return;
  FSDP_CHECK(type == "linear" || type == "llama3",
             "{}: rope_type: expected default, linear or llama3, got '{}'", keys.where(), type);
  rope.factor = positive(keys, "factor", keys.get<double>("factor"));
  rope.scaling = RopeConfig::Scaling::kLinear;
  if (type == "linear") return;
  rope.scaling = RopeConfig::Scaling::kLlama3;
  rope.low_frequency_factor = keys.get<double>("low_freq_factor");
  rope.high_frequency_factor = keys.get<double>("high_freq_factor");
  FSDP_CHECK(rope.high_frequency_factor > rope.low_frequency_factor,
             "{}: high_freq_factor: expected above low_freq_factor {}, got {}", keys.where(),
             rope.low_frequency_factor, rope.high_frequency_factor);
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const auto original = static_cast<double>(keys.get<int64_t>(kOriginal));
  rope.original_max_positions = positive(keys, kOriginal, original);
}

// `rope`: what is said outside of the object.
RopeConfig read_rope_object(const ConfigKeys& keys, const std::string& type, RopeConfig rope) {
  keys.refuse_objects();
  rope.theta = positive(keys, "rope_theta", keys.get_or<double>("rope_theta", rope.theta));
  rope.fraction = keys.get_or<double>("partial_rotary_factor", rope.fraction);
  read_scaling(keys, type, rope);
  return rope;
}

RopeConfig read_rope_scaling(const ConfigKeys& keys, bool type_wins, const RopeConfig& rope) {
  const ConfigKeys scaling = keys.object("rope_scaling");
  const bool has_new = scaling.has("rope_type");
  const bool old = scaling.has("type") && (type_wins || !has_new);
  return read_rope_object(scaling, scaling.get<std::string>(old ? "type" : "rope_type"), rope);
}

RopeConfig read_rope_parameters(const ConfigKeys& keys, const RopeConfig& rope) {
  const ConfigKeys parameters = keys.object("rope_parameters");
  const std::string old = parameters.get_or<std::string>("type", "default");
  return read_rope_object(parameters, parameters.get_or<std::string>("rope_type", old), rope);
}

bool is_same(const RopeConfig& a, const RopeConfig& b) {
  return a.theta == b.theta && a.fraction == b.fraction &&
         rope_scaling_json(a) == rope_scaling_json(b);
}

}  // namespace

RopeConfig read_rope(const ConfigKeys& keys, const RopeKeys& names) {
  RopeConfig rope;
  rope.theta = positive(keys, names.theta, keys.get_or<double>(names.theta, rope.theta));
  rope.fraction = keys.get_or<double>(names.fraction, names.default_fraction);
  const bool now = keys.has("rope_parameters"), before = keys.has("rope_scaling");
  if (!now && !before) return rope;
  if (!now) {
    const RopeConfig scaled = read_rope_scaling(keys, names.type_wins, rope);
    // transformers 4.57 reads neither of them there.
    FSDP_CHECK(scaled.theta == rope.theta && scaled.fraction == rope.fraction,
               "{}: rope_scaling: expected no rope_theta and no partial_rotary_factor, or what {} "
               "and {} outside of rope_scaling say ({:g} and {:g}), got {:g} and {:g}",
               keys.where(), names.theta, names.fraction, rope.theta, rope.fraction, scaled.theta,
               scaled.fraction);
    return scaled;
  }
  const RopeConfig read = read_rope_parameters(keys, rope);
  // Of two that differ, transformers 4 takes the one outside, transformers 5 the one inside.
  const auto agree = [&](const char* key, double outside, double inside) {
    FSDP_CHECK(!keys.has(key) || outside == inside,
               "{}: {}: {:g} contradicts rope_parameters, which has {:g}", keys.where(), key,
               outside, inside);
  };
  agree(names.theta, rope.theta, read.theta);
  agree(names.fraction, rope.fraction, read.fraction);
  // A rope_scaling without a theta or a fraction says nothing about them.
  rope.theta = read.theta;
  rope.fraction = read.fraction;
  FSDP_CHECK(!before || is_same(read_rope_scaling(keys, names.type_wins, rope), read),
             "{}: rope_scaling: says something else than rope_parameters", keys.where());
  return read;
}

double norm_epsilon_of(const ConfigKeys& keys, const char* key, double otherwise) {
  const double value = keys.get_or<double>(key, otherwise);
  FSDP_CHECK(value >= 0, "{}: {}: expected at least 0, got {:g}", keys.where(), key, value);
  return value;
}

Json rope_scaling_json(const RopeConfig& rope) {
  using Scaling = RopeConfig::Scaling;
  if (rope.scaling == Scaling::kNone) return nullptr;
  Json json = {{"rope_type", rope.scaling == Scaling::kLinear ? "linear" : "llama3"},
               {"factor", rope.factor}};
  if (rope.scaling == Scaling::kLlama3) {
    json["low_freq_factor"] = rope.low_frequency_factor;
    json["high_freq_factor"] = rope.high_frequency_factor;
    json["original_max_position_embeddings"] = static_cast<int64_t>(rope.original_max_positions);
  }
  return json;
}

}  // namespace fsdp::models
