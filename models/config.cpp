// Conventions of the families, checks, parameter counts, presets. Reading files: config_json.cpp.
#include "models/config.h"

#include <array>
#include <cmath>

#include "core/error.h"

namespace fsdp::models {

double ModelConfig::attention_scale() const {
  return 1.0 / std::sqrt(static_cast<double>(head_dim));
}

int64_t ModelConfig::parameter_count() const {
  const auto linear = [](int64_t in, int64_t out, bool bias) { return in * out + (bias ? out : 0); };
  const int64_t norm_size = hidden * (norm == NormKind::kLayerNorm ? 2 : 1);
  const int64_t q = heads * head_dim, kv = kv_heads * head_dim;
  const int64_t attention =
      linear(hidden, q + 2 * kv, qkv_bias) + linear(q, hidden, attention_out_bias);
  const int64_t mlp_size = (mlp == MlpKind::kSwiGlu ? 2 : 1) * linear(hidden, ffn, mlp_bias) +
                           linear(ffn, hidden, mlp_bias);
  const int64_t tables = vocabulary * hidden * (tied_head ? 1 : 2) +
                         (positions == PositionKind::kLearned ? max_positions * hidden : 0);
  return tables + layers * (2 * norm_size + attention + mlp_size) + norm_size;
}

ModelConfig family_defaults(const std::string& family) {
  ModelConfig config;
  config.family = family;
  if (family == "gpt2") {
    config.class_prefix = "GPT2";
    config.model_class = "GPT2LMHeadModel";
    config.block_class = "GPT2Block";
    config.packed_qkv = config.qkv_bias = config.attention_out_bias = config.mlp_bias = true;
    config.weight_layout = ops::WeightLayout::kInOut;
    config.tied_head = true;
    config.scaled_residual_init = true;
  } else if (family == "llama") {
    config.class_prefix = "Llama";
    config.model_class = "LlamaForCausalLM";
    config.block_class = "LlamaDecoderLayer";
    config.block_order = {BlockPart::kAttention, BlockPart::kMlp, BlockPart::kAttentionNorm,
                          BlockPart::kMlpNorm};
    config.positions = PositionKind::kRope;
    config.norm = NormKind::kRmsNorm;
    config.mlp = MlpKind::kSwiGlu;
    config.norm_epsilon = 1e-6;
  } else {
    fail("model family: this build knows gpt2 and llama, got '{}'", family);
  }
  return config;
}

void validate(const ModelConfig& c) {
  struct Field {
    const char* name;
    int64_t value;
  };
  for (const Field& field : std::array{
           Field{"vocabulary", c.vocabulary}, Field{"hidden", c.hidden}, Field{"layers", c.layers},
           Field{"heads", c.heads}, Field{"kv_heads", c.kv_heads}, Field{"head_dim", c.head_dim},
           Field{"ffn", c.ffn}, Field{"max_positions", c.max_positions}}) {
    FSDP_CHECK(field.value > 0, "model config: {}: expected a positive number, got {}", field.name,
               field.value);
  }
  FSDP_CHECK(c.heads % c.kv_heads == 0,
             "model config: kv_heads: expected a divisor of {} heads, got {}", c.heads, c.kv_heads);
  FSDP_CHECK(c.positions != PositionKind::kRope || c.head_dim % 2 == 0,
             "model config: head_dim: rotary positions need an even number, got {}", c.head_dim);
  for (const double p : {c.embedding_dropout, c.attention_dropout, c.residual_dropout}) {
    FSDP_CHECK(p >= 0 && p < 1, "model config: dropout: expected within [0, 1), got {}", p);
  }
}

// ---------------------------------------------------------------------------- Presets

namespace {

struct Preset {
  const char* name;
  const char* family;
  int64_t vocabulary, hidden, layers, heads, kv_heads, ffn, max_positions;
  double rope_theta;
  bool tied_head;
};

// Sizes as published in the models' config.json.
constexpr std::array kPresets = {
    Preset{"gpt2-124m", "gpt2", 50257, 768, 12, 12, 12, 3072, 1024, 0, true},
    Preset{"gpt2-355m", "gpt2", 50257, 1024, 24, 16, 16, 4096, 1024, 0, true},
    Preset{"gpt2-774m", "gpt2", 50257, 1280, 36, 20, 20, 5120, 1024, 0, true},
    Preset{"gpt2-1558m", "gpt2", 50257, 1600, 48, 25, 25, 6400, 1024, 0, true},
    Preset{"tinyllama-1.1b", "llama", 32000, 2048, 22, 32, 4, 5632, 2048, 1e4, false},
    Preset{"llama-7b", "llama", 32000, 4096, 32, 32, 32, 11008, 4096, 1e4, false},
    Preset{"codellama-7b", "llama", 32016, 4096, 32, 32, 32, 11008, 16384, 1e6, false},
    Preset{"llama3-8b", "llama", 128256, 4096, 32, 32, 8, 14336, 8192, 5e5, false},
};

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

ModelConfig preset(const std::string& name) {
  for (const Preset& p : kPresets) {
    if (name != p.name) continue;
    ModelConfig config = family_defaults(p.family);
    config.vocabulary = p.vocabulary;
    config.hidden = p.hidden;
    config.layers = p.layers;
    config.heads = p.heads;
    config.kv_heads = p.kv_heads;
    config.head_dim = p.hidden / p.heads;
    config.ffn = p.ffn;
    config.max_positions = p.max_positions;
    config.rope.theta = p.rope_theta;
    config.tied_head = p.tied_head;
    return config;
  }
  fail("preset: expected one of {}, got '{}'", fmt::join(preset_names(), ", "), name);
}

}  // namespace fsdp::models
