// Checks and parameter counts. Families and presets: family.cpp; reading files: config_json.cpp.
#include "models/config.h"

#include <array>
#include <cmath>

#include "core/error.h"

namespace fsdp::models {

double ModelConfig::attention_scale() const {
  return 1.0 / std::sqrt(static_cast<double>(head_dim));
}

int64_t ModelConfig::rotary_dim() const {
  return static_cast<int64_t>(static_cast<double>(head_dim) * rope.fraction);
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
  const int64_t outer_norms = (embedding_norm ? 2 : 1) * norm_size;
  return tables + layers * (2 * norm_size + attention + mlp_size) + outer_norms;
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
  FSDP_CHECK(c.positions != PositionKind::kRope || (c.rotary_dim() > 0 && c.rotary_dim() % 2 == 0 &&
                                                    c.rotary_dim() <= c.head_dim),
             "model config: head_dim: rotary positions need an even number, got {} of {} channels",
             c.rotary_dim(), c.head_dim);
  FSDP_CHECK(!c.packed_by_head || c.kv_heads == c.heads,
             "model config: kv_heads: rows packed by head need as many as heads, got {} and {}",
             c.kv_heads, c.heads);
  FSDP_CHECK(c.window >= 0, "model config: window: expected at least 0, got {}", c.window);
  for (const double p : {c.embedding_dropout, c.attention_dropout, c.residual_dropout}) {
    FSDP_CHECK(p >= 0 && p < 1, "model config: dropout: expected within [0, 1), got {}", p);
  }
}

}  // namespace fsdp::models
