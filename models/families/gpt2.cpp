// GPT-2: learned positions, packed [q | k | v], weights stored (in, out).
#include "models/family.h"

namespace fsdp::models {
namespace {

ModelConfig defaults() {
  ModelConfig c;
  c.class_prefix = "GPT2";
  c.model_class = "GPT2LMHeadModel";
  c.block_class = "GPT2Block";
  c.packed_qkv = c.qkv_bias = c.attention_out_bias = c.mlp_bias = true;
  c.weight_layout = ops::WeightLayout::kInOut;
  c.tied_head = true;
  c.scaled_residual_init = true;
  return c;
}

void read(const ConfigKeys& keys, ModelConfig& c) {
  c.vocabulary = keys.extent("vocab_size", 50257);
  c.hidden = keys.either("n_embd", "hidden_size", 768);
  c.layers = keys.either("n_layer", "num_hidden_layers", 12);
  c.heads = c.kv_heads = keys.either("n_head", "num_attention_heads", 12);
  c.head_dim = divided_head_dim(keys, c, "n_head");
  c.ffn = keys.get_or<int64_t>("n_inner", 4 * c.hidden);
  // n_ctx says something only in files that have no other name for it.
  const int64_t oldest = keys.get_or<int64_t>("n_ctx", 1024);
  c.max_positions = keys.either("n_positions", "max_position_embeddings", oldest);
  c.activation = read_activation(keys, "activation_function", "gelu_new");
  c.norm_epsilon = norm_epsilon_of(keys, "layer_norm_epsilon", 1e-5);
  c.embedding_dropout = keys.get_or<double>("embd_pdrop", 0.1);
  c.attention_dropout = keys.get_or<double>("attn_pdrop", 0.1);
  c.residual_dropout = keys.get_or<double>("resid_pdrop", 0.1);
  // As eager attention does; the fused one of transformers 4.57 leaves both out (its issue 44380).
  c.scaled_scores = keys.get_or<bool>("scale_attn_weights", true);
  c.scores_by_layer = keys.get_or<bool>("scale_attn_by_inverse_layer_idx", false);
}

Json write(const ModelConfig& c) {
  return {{"vocab_size", c.vocabulary},
          {"n_positions", c.max_positions},
          {"n_embd", c.hidden},
          {"n_layer", c.layers},
          {"n_head", c.heads},
          {"n_inner", c.ffn},
          {"activation_function", activation_name(c.activation)},
          {"layer_norm_epsilon", c.norm_epsilon},
          {"scale_attn_weights", c.scaled_scores},
          {"scale_attn_by_inverse_layer_idx", c.scores_by_layer},
          {"embd_pdrop", c.embedding_dropout},
          {"attn_pdrop", c.attention_dropout},
          {"resid_pdrop", c.residual_dropout}};
}

}  // namespace

const Family family::kGpt2 = {.name = "gpt2", .defaults = defaults, .read = read, .write = write};

}  // namespace fsdp::models
