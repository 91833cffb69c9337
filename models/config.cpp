// Checks and parameter counts. Families and presets: family.cpp; reading files: config_json.cpp.
#include "models/config.h"

#include <array>
#include <cmath>

#include "core/error.h"

namespace fsdp::models {

double ModelConfig::attention_scale(int64_t layer) const {
  const double scale = scaled_scores ? 1.0 / std::sqrt(static_cast<double>(head_dim)) : 1.0;
  return scores_by_layer ? scale / static_cast<double>(layer + 1) : scale;
}

double ModelConfig::embedding_scale() const {
  return scaled_embedding ? std::sqrt(static_cast<double>(hidden)) : 1;
}

int64_t ModelConfig::rotary_dim() const {
  return static_cast<int64_t>(static_cast<double>(head_dim) * rope.fraction);
}

namespace {

// As int64_t, or as double where the sum may not fit.
template <typename Number>
Number count_parameters(const ModelConfig& c) {
  const Number hidden = static_cast<Number>(c.hidden), ffn = static_cast<Number>(c.ffn);
  const Number vocabulary = static_cast<Number>(c.vocabulary);
  const auto linear = [](Number in, Number out, bool bias) { return in * out + (bias ? out : 0); };
  const Number norm_size = hidden * (c.norm == NormKind::kLayerNorm ? 2 : 1);
  const Number q = static_cast<Number>(c.heads) * static_cast<Number>(c.head_dim);
  const Number kv = static_cast<Number>(c.kv_heads) * static_cast<Number>(c.head_dim);
  const Number attention =
      linear(hidden, q + 2 * kv, c.qkv_bias) + linear(q, hidden, c.attention_out_bias);
  const Number mlp = (c.mlp == MlpKind::kGated ? 2 : 1) * linear(hidden, ffn, c.mlp_bias) +
                     linear(ffn, hidden, c.mlp_bias);
  const int64_t position_rows =
      c.positions == PositionKind::kLearned ? c.max_positions + c.position_offset : 0;
  const Number tables = vocabulary * hidden * (c.tied_head ? 1 : 2) +
                        static_cast<Number>(position_rows) * hidden +
                        (c.head_bias ? vocabulary : 0);
  const Number outer_norms = ((c.embedding_norm ? 1 : 0) + (c.final_norm ? 1 : 0)) * norm_size;
  return tables + static_cast<Number>(c.layers) * (2 * norm_size + attention + mlp) + outer_norms;
}

}  // namespace

int64_t ModelConfig::parameter_count() const { return count_parameters<int64_t>(*this); }

void validate(const ModelConfig& c) {
  struct Field {
    const char* name;
    int64_t value;
    // A layer and a head cost memory before a weight is read: no file may ask for millions.
    int64_t most = INT64_MAX;
  };
  for (const Field& field :
       std::array{Field{"vocabulary", c.vocabulary}, Field{"hidden", c.hidden},
                  Field{"layers", c.layers, 10'000}, Field{"heads", c.heads, 65'536},
                  Field{"kv_heads", c.kv_heads}, Field{"head_dim", c.head_dim}, Field{"ffn", c.ffn},
                  Field{"max_positions", c.max_positions}}) {
    FSDP_CHECK(field.value > 0, "model config: {}: expected a positive number, got {}", field.name,
               field.value);
    FSDP_CHECK(field.value <= field.most, "model config: {}: expected at most {}, got {}",
               field.name, field.most, field.value);
  }
  constexpr double kMostParameters = 0x1p62;
  FSDP_CHECK(count_parameters<double>(c) < kMostParameters,
             "model config: expected fewer than 2^62 parameters, got about {:.3g}",
             count_parameters<double>(c));
  FSDP_CHECK(c.rope.fraction > 0 && c.rope.fraction <= 1,
             "model config: rotary fraction: expected within (0, 1], got {}", c.rope.fraction);
  FSDP_CHECK(c.heads % c.kv_heads == 0,
             "model config: kv_heads: expected a divisor of {} heads, got {}", c.heads, c.kv_heads);
  FSDP_CHECK(c.positions != PositionKind::kRope ||
                 (c.rotary_dim() > 0 && c.rotary_dim() % 2 == 0 && c.rotary_dim() <= c.head_dim),
             "model config: head_dim: rotary positions need an even number, got {} of {} channels",
             c.rotary_dim(), c.head_dim);
  FSDP_CHECK(!c.packed_by_head || c.kv_heads == c.heads,
             "model config: kv_heads: rows packed by head need as many as heads, got {} and {}",
             c.kv_heads, c.heads);
  FSDP_CHECK(!c.post_norm || !c.parallel_residual,
             "model config: post_norm: expected attention and MLP one after the other");
  FSDP_CHECK(!c.normed_residual || !(c.post_norm || c.parallel_residual),
             "model config: normed_residual: expected norms in front, attention and MLP one after "
             "the other");
  FSDP_CHECK(c.padding_row >= -1 && c.padding_row < c.vocabulary,
             "model config: padding_row: expected one of {} rows, or -1 for none, got {}",
             c.vocabulary, c.padding_row);
  FSDP_CHECK(c.window >= 0, "model config: window: expected at least 0, got {}", c.window);
  for (const double p :
       {c.embedding_dropout, c.attention_dropout, c.residual_dropout, c.mlp_dropout}) {
    FSDP_CHECK(p >= 0 && p < 1, "model config: dropout: expected within [0, 1), got {}", p);
  }
}

}  // namespace fsdp::models
