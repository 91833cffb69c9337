// GPT-NeoX and Pythia: rotary positions on a part of each head, attention and MLP side by side.
// From scratch they start as transformers starts them, with one deviation for all matrices; the
// small_init and wang_init of Pythia's own training are not here.
#include <array>

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

constexpr std::array kBlock = {NamePair{"attention_norm.", "input_layernorm."},
                               NamePair{"mlp_norm.", "post_attention_layernorm."},
                               NamePair{"attention.qkv.", "attention.query_key_value."},
                               NamePair{"attention.out.", "attention.dense."},
                               NamePair{"mlp.up.", "mlp.dense_h_to_4h."},
                               NamePair{"mlp.down.", "mlp.dense_4h_to_h."}};
constexpr std::array kRootNames = {NamePair{"embedding.tokens.", "gpt_neox.embed_in."},
                                   NamePair{"final_norm.", "gpt_neox.final_layer_norm."},
                                   NamePair{"head.", "embed_out."}};
constexpr std::array<std::string_view, 3> kIgnorable = {".attention.bias", ".attention.masked_bias",
                                                        ".rotary_emb.inv_freq"};

void gpt_neox_20b(ModelConfig& c) { c.activation = Activation::kGeluTanh; }

constexpr std::array kIgnored = {
    IgnoredKey{"classifier_dropout", "belongs to a head that classifies"},
    IgnoredKey{"pad_token_id", "has no row of its own in GPT-NeoX's table"},
};

constexpr std::array kPresets = {
    Preset{"pythia-70m", 50304, 512, 6, 8, 8, 2048, 2048},
    Preset{"pythia-160m", 50304, 768, 12, 12, 12, 3072, 2048},
    Preset{"pythia-410m", 50304, 1024, 24, 16, 16, 4096, 2048},
    Preset{"pythia-1b", 50304, 2048, 16, 8, 8, 8192, 2048},
    Preset{"pythia-1.4b", 50304, 2048, 24, 16, 16, 8192, 2048},
    Preset{"pythia-2.8b", 50304, 2560, 32, 32, 32, 10240, 2048},
    Preset{"pythia-6.9b", 50432, 4096, 32, 32, 32, 16384, 2048},
    Preset{"pythia-12b", 50688, 5120, 36, 40, 40, 20480, 2048},
    Preset{"gpt-neox-20b", 50432, 6144, 44, 64, 64, 24576, 2048, gpt_neox_20b},
};

}  // namespace

const Family family::kGptNeox = {.name = "gpt_neox",
                                 .defaults = defaults,
                                 .read = read,
                                 .write = write,
                                 .names = {"gpt_neox.", "layers.", kBlock, kRootNames, kIgnorable},
                                 .presets = kPresets,
                                 .ignored = kIgnored,
                                 .absent_bos = 0,
                                 .absent_eos = 2};

}  // namespace fsdp::models
