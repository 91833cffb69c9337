// GPT-NeoX and Pythia: rotary positions on a part of each head, attention and MLP side by side.
// From scratch they start as transformers starts them, with one deviation for all matrices; the
// small_init and wang_init of Pythia's own training are not here.
#include "models/family.h"

namespace fsdp::models {
namespace {

ModelConfig defaults() {
  ModelConfig c;
  c.class_prefix = "GPTNeoX";
  c.model_class = "GPTNeoXForCausalLM";
  c.block_class = "GPTNeoXLayer";
  c.block_order = {BlockPart::kAttentionNorm, BlockPart::kMlpNorm, BlockPart::kAttention,
                   BlockPart::kMlp};
  c.positions = PositionKind::kRope;
  c.rope.fraction = 0.25;
  c.activation = Activation::kGeluErf;
  c.parallel_residual = true;
  c.packed_qkv = c.packed_by_head = true;
  c.qkv_bias = c.attention_out_bias = c.mlp_bias = true;
  return c;
}

// transformers 4.57 saves rope_theta and partial_rotary_factor as well, and sets them from the keys
// of this family when it reads.
RopeConfig read_neox_rope(const ConfigKeys& keys) {
  const RopeConfig rope = read_rope(
      keys, {.theta = "rotary_emb_base", .fraction = "rotary_pct", .default_fraction = 0.25});
  const auto refuse = [&](const char* own, const char* common, double value) {
    const bool same = keys.get_or<double>(common, value) == value;
    FSDP_CHECK(same || keys.has(own), "{}: {}: transformers ignores it for GPT-NeoX: set {}",
               keys.where(), common, own);
  };
  refuse("rotary_emb_base", "rope_theta", rope.theta);
  refuse("rotary_pct", "partial_rotary_factor", rope.fraction);
  return rope;
}

void read(const ConfigKeys& keys, ModelConfig& c) {
  c.vocabulary = keys.extent("vocab_size", 50432);
  c.hidden = keys.extent("hidden_size", 6144);
  c.layers = keys.extent("num_hidden_layers", 44);
  c.heads = c.kv_heads = keys.extent("num_attention_heads", 64);
  c.head_dim = divided_head_dim(keys, c, "num_attention_heads");
  c.ffn = keys.extent("intermediate_size", 24576);
  c.max_positions = keys.extent("max_position_embeddings", 2048);
  c.activation = read_activation(keys, "hidden_act", "gelu");
  c.norm_epsilon = norm_epsilon_of(keys, "layer_norm_eps", 1e-5);
  c.embedding_dropout = c.residual_dropout = keys.get_or<double>("hidden_dropout", 0);
  c.attention_dropout = keys.get_or<double>("attention_dropout", 0);
  c.parallel_residual = keys.get_or<bool>("use_parallel_residual", true);
  c.qkv_bias = c.attention_out_bias = keys.get_or<bool>("attention_bias", true);
  c.rope = read_neox_rope(keys);
}

Json write(const ModelConfig& c) {
  return {{"vocab_size", c.vocabulary},
          {"hidden_size", c.hidden},
          {"intermediate_size", c.ffn},
          {"num_hidden_layers", c.layers},
          {"num_attention_heads", c.heads},
          {"max_position_embeddings", c.max_positions},
          {"hidden_act", activation_name(c.activation)},
          {"layer_norm_eps", c.norm_epsilon},
          {"hidden_dropout", c.residual_dropout},
          {"attention_dropout", c.attention_dropout},
          {"attention_bias", c.qkv_bias},
          {"use_parallel_residual", c.parallel_residual},
          {"rotary_pct", c.rope.fraction},
          {"rotary_emb_base", c.rope.theta},
          {"rope_scaling", rope_scaling_json(c.rope)}};
}

}  // namespace

const Family family::kGptNeox = {
    .name = "gpt_neox", .defaults = defaults, .read = read, .write = write};

}  // namespace fsdp::models
