// BLOOM: ALiBi instead of positions, a norm behind the embedding, [head, (q, k, v), width] rows.
#include "models/family.h"

namespace fsdp::models {
namespace {

ModelConfig defaults() {
  ModelConfig c;
  c.class_prefix = "Bloom";
  c.model_class = "BloomForCausalLM";
  c.block_class = "BloomBlock";
  c.positions = PositionKind::kAlibi;
  c.embedding_norm = true;
  c.packed_qkv = c.packed_by_head = true;
  c.qkv_bias = c.attention_out_bias = c.mlp_bias = true;
  c.tied_head = true;
  c.activation = Activation::kGeluBloom;
  return c;
}

void read(const ConfigKeys& keys, ModelConfig& c) {
  c.vocabulary = keys.extent("vocab_size", 250880);
  // transformers lets the old name win.
  c.hidden = keys.get_or<int64_t>("n_embed", keys.extent("hidden_size", 64));
  c.layers = keys.either("n_layer", "num_hidden_layers", 2);
  c.heads = c.kv_heads = keys.either("n_head", "num_attention_heads", 8);
  c.head_dim = divided_head_dim(keys, c, "n_head");
  c.ffn = 4 * c.hidden;
  c.max_positions = keys.get_or<int64_t>("seq_length", 2048);  // nothing bounds them but training
  c.norm_epsilon = norm_epsilon_of(keys, "layer_norm_epsilon", 1e-5);
  c.attention_dropout = keys.get_or<double>("attention_dropout", 0);
  c.residual_dropout = keys.get_or<double>("hidden_dropout", 0);
  // transformers then sums slices of the products and drops both biases.
  const bool slices = keys.get_or<int64_t>("pretraining_tp", 1) > 1;
  keys.refuse_unless(!keys.get_or<bool>("slow_but_exact", false) || !slices, "slow_but_exact",
                     "true with pretraining_tp above 1");
  c.normed_residual = keys.get_or<bool>("apply_residual_connection_post_layernorm", false);
}

Json write(const ModelConfig& c) {
  return {{"vocab_size", c.vocabulary},
          {"hidden_size", c.hidden},
          {"n_layer", c.layers},
          {"n_head", c.heads},
          {"seq_length", c.max_positions},
          {"layer_norm_epsilon", c.norm_epsilon},
          {"attention_dropout", c.attention_dropout},
          {"hidden_dropout", c.residual_dropout},
          {"apply_residual_connection_post_layernorm", c.normed_residual}};
}

}  // namespace

const Family family::kBloom = {.name = "bloom", .defaults = defaults, .read = read, .write = write};

}  // namespace fsdp::models
